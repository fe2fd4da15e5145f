"""Mutation tests: each mutant is a wrong line in the package, with the test file of the everyday suite that catches it.

    python tests/mutants.py [NAME ...]      tries all, or these, two at a time; the exit code is 1 if one survives

A mutant is applied to a copy of the checkout. A test file that passes on a mutant does not test what the mutant breaks.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
TIMEOUT = 600  # seconds per test file
PARTS = ("bert_jax/", "configs/", "docs/", "launch/", "tests/", "setup.cfg")


class Mutant(NamedTuple):
    """A wrong line, and the test that catches it."""

    name: str
    file: str  # in bert_jax/
    right: str  # the text to replace, which is in the file once
    wrong: str
    test: str  # in tests/


# For each mutant: its name, its file and the test that catches it; then the right text (-) and the wrong text (+).
TABLE = r"""
wrong epsilon in the head | models/heads.py | test_golden.py
- x = layers.LayerNorm(self.epsilon, x.dtype, name="norm")(x)
+ x = layers.LayerNorm(1e-5, x.dtype, name="norm")(x)
gelu_tanh by erf | models/layers.py | test_golden.py
- "gelu_tanh": partial(nn.gelu, approximate=True)
+ "gelu_tanh": partial(nn.gelu, approximate=False)
gelu by tanh | models/layers.py | test_golden.py
- "gelu": partial(nn.gelu, approximate=False)
+ "gelu": partial(nn.gelu, approximate=True)
masked-LM loss without 1e-5 | objectives/mlm.py | test_golden.py
- batch["masked_weights"].sum() + 1e-5
+ batch["masked_weights"].sum()
attention scores off by 1e-4 | models/layers.py | test_golden.py
- scale=(width // self.heads) ** -0.5)
+ scale=(1 + 1e-4) * (width // self.heads) ** -0.5)
vocabulary padding in the softmax | models/layers.py | models/test_bert.py
- return jnp.where(real, logits + bias, MASKED)
+ return logits + bias
no attention mask | models/attention.py | models/test_bert.py
- scores_BHLM = jnp.where(attention_mask(sequence_ids, causal), scores_BHLM, layers.MASKED)
+ pass
no residual around attention | models/layers.py | test_golden.py
- name="attention_norm")(x + y))
+ name="attention_norm")(y))
a pooler without tanh | models/bert.py | test_golden.py
- return jnp.tanh(self.pooler(
+ return (self.pooler(
dropout without scaling | models/layers.py | models/test_bert.py
- jnp.where(kept, x * jnp.asarray(1 / (1 - rate), x.dtype), 0)
+ jnp.where(kept, x, 0)
layer norm gradient without its mean | models/layers.py | test_golden.py
- gradient - gradient.mean(-1, keepdims=True) - normal * along
+ gradient - normal * along
gradient sums in bfloat16 | models/layers.py | test_golden.py
- d_bias = gradient.sum(rows, dtype=gradient_dtype)
+ d_bias = gradient.astype(jnp.bfloat16).sum(rows)
attention between packed sequences | models/attention.py | models/test_packed_losses.py
- attention_mask(sequence_ids, causal), scores_BHLM
+ attention_mask(jnp.minimum(sequence_ids, 1), causal), scores_BHLM
causal attention sees the next token | models/attention.py | objectives/test_causal_lm.py
- return jnp.tril(same) if causal else same
+ return jnp.tril(same, 1) if causal else same
causal LM predicts the token it sees | objectives/causal_lm.py | objectives/test_causal_lm.py
- targets = jnp.roll(batch["tokens"], -1, axis=1)
+ targets = batch["tokens"]
dropout ignores the step | step.py | test_step.py
- key = prng.fold(jnp.uint32(prng.key(seed)), state.step.astype(jnp.uint32))
+ key = jnp.uint32(prng.key(seed))
dropout ignores the seed | step.py | test_step.py
- jnp.uint32(prng.key(seed)), state
+ jnp.uint32(prng.key(0)), state
dropout ignores the row | objectives/base.py | test_step.py
- keys = prng.fold(step_key, batch["rows"].astype(jnp.uint32))
+ keys = prng.fold(step_key, 0 * batch["rows"].astype(jnp.uint32))
only the last micro-batch | step.py | test_micro_batches.py
- return jax.tree.map(jnp.add, sums, function(rows)), None
+ return jax.tree.map(lambda a, b: b, sums, function(rows)), None
mean over devices instead of sum | parallel/mesh.py | parallel/test_meshes.py
- jax.lax.psum((values, rounded), "data")
+ jax.lax.pmean((values, rounded), "data")
fsdp of a slice ignores the width | parallel/mesh.py | parallel/test_topologies.py
- math.gcd(len(devices) // others, width, rows)
+ math.gcd(len(devices) // others, rows)
word vectors that only a mesh rounds | parallel/constraints.py | parallel/test_constraints.py
- return jax.lax.reduce_precision(vectors, *rounding), (words, ids)
+ return vectors, (words, ids)
a second error replaces the first | parallel/processes.py | parallel/test_processes.py
-         finally:
-             os._exit(code)
+         except Exception:
+             os._exit(code)
rows of another host | parallel/mesh.py | parallel/test_processes.py
- if device.process_index == process
+ if device.process_index != process
a step that is not finite is applied | step_guard.py | test_step_guard.py
- is_applied = is_finite & ~is_spike if skip_spikes else is_finite
+ is_applied = is_finite | True
consecutive bad steps are not counted | step_guard.py | test_step_guard.py
- row = jnp.where(is_finite, 0, state.row + 1)
+ row = jnp.where(is_finite, 0, 1)
weight decay on biases | optimizer.py | test_optimizer.py
- not in ("bias", "scale")
+ not in ("scale",)
weight decay on scales | optimizer.py | test_optimizer.py
- not in ("bias", "scale")
+ not in ("bias",)
bias correction always on | optimizer.py | test_optimizer.py
- if config.bias_correction:
+ if True:
epsilon inside the square root | optimizer.py | test_optimizer.py
- m / (jnp.sqrt(v) + config.epsilon)
+ m / jnp.sqrt(v + config.epsilon)
clipping by value | optimizer.py | test_optimizer.py
- jnp.where(norm < most, u, u / norm * most)
+ jnp.clip(u, -most, most)
decay starts at the end of the warm-up | optimizer.py | test_optimizer.py
- return 1 - step / total
+ return 1 - (step - warmup) / (total - warmup)
Adafactor without factoring | optimizer.py | test_optimizer.py
- optax.scale_by_factored_rms()
+ optax.scale_by_factored_rms(factored=False)
unused sentences are lost | tasks/pair_rows.py | tasks/test_pair_rows.py
- following = start + np.where(random, a_size, size)
+ following = start + size
no random pair for one sentence | tasks/pair_rows.py | tasks/test_pair_rows.py
- random = size == 1
+ random = size == 0
random document may be the same | tasks/pair_rows.py | tasks/test_pair_rows.py
- return other + (other >= own)
+ return other + (other > own)
truncation favours B | tasks/pair_rows.py | tasks/test_pair_rows.py
- np.maximum(room - b, (room + 1) // 2)
+ np.maximum(room - b, room // 2)
rows ignore the seed | tasks/pair_rows.py | tasks/test_pair_rows.py
- draw_key(rules.seed, purpose
+ draw_key(0, purpose
masks that ignore the epoch | data/stream.py | data/test_stream.py
- self.key("row", epoch)
+ self.key("row", 0)
held-out rows that depend on the phase | data/dataset.py | data/test_stream.py
- seed = phase = 0
+ seed = 0
a padded row that is counted | data/stream.py | data/test_stream.py
- step * pipeline.batch + pipeline.positions < rows
+ step * pipeline.batch + pipeline.positions <= rows
segments off by one | data/assemble.py | data/test_stream.py
- "segments": as_ids((position > first_sep) & real
+ "segments": as_ids((position >= first_sep) & real
[CLS] may be masked | data/assemble.py | data/test_stream.py
- "maskable": in_a | in_b,
+ "maskable": in_a | in_b | (position == start),
a token is lost in a long sentence | tasks/full_sentences.py | tasks/test_full_sentences.py
- start = limit
+ start = limit + 1
rows that cross documents although they may not | tasks/full_sentences.py | tasks/test_full_sentences.py
- if rules.cross_documents else
+ if True else
full sentences cut alike in every epoch | tasks/full_sentences.py | tasks/test_full_sentences.py
- prng.fold(key(epoch), numbers
+ prng.fold(key(0), numbers
a separator may be masked | data/assemble.py | tasks/test_full_sentences.py
- maskable = inside & ~between
+ maskable = inside
a word goes on after a separator | data/assemble.py | tasks/test_full_sentences.py
- ~tf.pad(maskable, [[0, 0], [1, 0]])
+ ~tf.pad(inside, [[0, 0], [1, 0]])
a separator one token late | data/assemble.py | tasks/test_token_blocks.py
- passed = tf.searchsorted(near, places)
+ passed = tf.searchsorted(near, places - 1)
token blocks cut alike in every epoch | tasks/token_blocks.py | tasks/test_token_blocks.py
- offset = int(prng.below(key, phase.length)[0])
+ offset = 0
too little text for a block is accepted | tasks/token_blocks.py | tasks/test_token_blocks.py
- if total < needed:
+ if total < length:
a mask off by one | data/masking.py | data/test_masking.py
- return prng.fold(keys, tf.cast(positions, tf.uint32), shift)
+ return prng.fold(keys, tf.cast(positions, tf.uint32) + 1, shift)
82 % [MASK] instead of 80 % | data/masking.py | data/test_statistics.py
- masked_below = round(task.mask_share * 2**32)
+ masked_below = round((task.mask_share + 0.02) * 2**32)
number of predictions rounded down | data/masking.py | data/test_masking.py
- np.rint(mask_rate * np.arange(length + 1))
+ np.floor(mask_rate * np.arange(length + 1))
wrong shift in the hash | prng.py | test_prng.py
- x = (x ^ shift(x, np.uint32(15)))
+ x = (x ^ shift(x, np.uint32(14)))
words over 50 characters are unknown | tokenizers/wordpiece.py | tokenizers/test_wordpiece.py
- LONGEST_WORD = 100
+ LONGEST_WORD = 50
two processes train at one address | runs/lock.py | runs/test_bucket.py
- self.is_lost |= holder.get("nonce") != self.nonce
+ self.is_lost |= False
an address that is not a run is accepted | runs/workdir.py | runs/test_bucket.py
- names = set(self.bucket.names())
+ names = set()
hashes of a store are not compared | storage/checksums.py | commands/test_verify.py
- if hashes and digest(path) != expected["sha256"]:
+ if False:
checkpoints without moments | checkpoints/reader.py | test_ends.py
- ITEMS = ("params", "opt_state")
+ ITEMS = ("params",)
a restore that verifies nothing | checkpoints/reader.py | test_train.py
- reason := problem(path, run, items, trees)
+ reason := ""
a fingerprint that ignores the index | checkpoints/fingerprint.py | checkpoints/test_fingerprint.py
-     first = prng.fold(numbers, bits, jax.lax.shift_right_logical)
-     return jnp.stack([first, prng.mix(first ^ numbers * AGAIN, jax.lax.shift_right_logical)])
+     first = prng.mix(bits + 0 * numbers, jax.lax.shift_right_logical)
+     return jnp.stack([first, prng.mix(first ^ AGAIN, jax.lax.shift_right_logical)])
a directory that is not a run is accepted | runs/workdir.py | runs/test_not_a_run.py
-                 raise BadInput(f"--workdir {self.name}: {hint}")
+                 pass
two processes train in one workdir | runs/lock.py | test_train.py
- fcntl.LOCK_EX | fcntl.LOCK_NB
+ fcntl.LOCK_SH | fcntl.LOCK_NB
partial directory after a failure | storage/atomic.py | storage/test_atomic.py
-         shutil.rmtree(temporary, ignore_errors=True)
-         if isinstance
+         if isinstance
resume with another seed | config.py | test_config.py
- CHANGEABLE = ("mesh",
+ CHANGEABLE = ("seed", "mesh",
a task's keys are set before its name | config.py | test_config.py
- text.partition("=")[0] not in NAMES
+ text.partition("=")[0] in NAMES
exit code 0 after preemption | runs/signals.py | test_ends.py
- PREEMPTED, INTERRUPTED = 75, 130
+ PREEMPTED, INTERRUPTED = 0, 130
edited text is not noticed | data/origin.py | data/test_existing_stores.py
- (name == before and is_old)
+ (name == before)
another source of the same size is accepted | data/origin.py | data/test_existing_stores.py
- or files.identify(paths) == identity
+ or True
rows that only fill a batch count | data/batch.py | test_external_task.py
- weights = used.astype(np.float32)
+ weights = np.ones(len(used), np.float32)
a split is evaluated on the training rows | data/stream.py | test_external_task.py
- self.pipeline = Pipeline(dataset, phase, split, 0, batch, positions)
+ self.pipeline = Pipeline(dataset, phase, dataset.splits[0], 0, batch, positions)
scores of rows in another order | data/stream.py | test_external_task.py
- return self.pipeline.choose(np.arange(self.rows), 0)
+ return self.pipeline.epochs.open(0)[np.arange(self.rows)]
labels are not filled from the data | tasks/base.py | test_external_task.py
- take_filled(config, values | (module.fill(config, store) if hasattr(module, "fill") else {}))
+ pass
an objective without its arrays | objectives/base.py | test_other_tasks.py
- if name not in made]
+ if not made]
a resumed run has no labels | train.py | test_external_task.py
- tasks.take_filled(config, old.task)
+ pass
metrics not divided by their weight | objectives/metrics.py | test_train.py
- float(total) / float(weight) if weight
+ float(total) if weight
query and key swapped | convert/names.py | convert/test_to_huggingface.py
- "attention.self.query", "attention/self/query"
+ "attention.self.key", "attention/self/query"
kernels not transposed | convert/names.py | convert/test_to_huggingface.py
- f"{c}/kernel", ("huggingface",)
+ f"{c}/kernel", ()
FLOPs without the backward pass | models/counts.py | models/test_counts.py
- return 3.0 * products
+ return 1.0 * products
links of half the speed | planning/topology.py | planning/test_topology.py
- return links * tpu.chip.link
+ return links * tpu.chip.link / 2
"""


def read(table: str) -> list[Mutant]:
    rows = []
    for line in table.strip().splitlines():
        if line[:2] == "- ":
            rows[-1][2].append(line[2:])
        elif line[:2] == "+ ":
            rows[-1][3].append(line[2:])
        else:
            name, file, test = line.split(" | ")
            rows.append((name, file, [], [], test))
    return [
        Mutant(name, file, "\n".join(right), "\n".join(wrong), test)
        for name, file, right, wrong, test in rows
    ]


MUTANTS = read(TABLE)


def copy_checkout(directory: Path) -> None:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    for name in names.stdout.splitlines():
        if name.startswith(PARTS) and (ROOT / name).is_file():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, directory / name)


def run_tests(directory: Path, test: str) -> int:
    """Returns the exit code of pytest: 0 passed, 1 failed; -1 after TIMEOUT."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    command += ["-p", "no:xdist", f"tests/{test}"]
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    try:
        return subprocess.run(
            command, cwd=directory, env=variables, capture_output=True, timeout=TIMEOUT
        ).returncode
    except subprocess.TimeoutExpired:
        return -1


def run(mutant: Mutant, directory: Path) -> str:
    """Returns `caught`, or why not. directory: for the copy of the checkout."""
    copy_checkout(directory)
    file = directory / "bert_jax" / mutant.file
    text = file.read_text()
    if text.count(mutant.right) != 1:
        return (
            f"bert_jax/{mutant.file} has the text {text.count(mutant.right)} times, expected once"
        )
    file.write_text(text.replace(mutant.right, mutant.wrong))
    code = run_tests(directory, mutant.test)
    return "caught" if code == 1 else f"tests/{mutant.test} ended with {code}"


def main(names: list[str]) -> int:
    chosen = [mutant for mutant in MUTANTS if not names or mutant.name in names]

    def is_caught(mutant: Mutant) -> bool:
        with tempfile.TemporaryDirectory() as directory:
            result = run(mutant, Path(directory))
        print(f"{result:<8} {mutant.name} ({mutant.test})", flush=True)
        return result == "caught"

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(is_caught, chosen))
    print(f"{sum(results)} of {len(results)} mutants caught")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

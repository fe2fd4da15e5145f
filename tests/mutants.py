"""The product broken on purpose: each mutant is a wrong line, and names the file of the everyday suite that catches it.

    python tests/mutants.py [NAME ...]      all of them, or these, two at a time; the exit code is 1 where one survives

A mutant is made in a copy of the checkout. A test that passes on one proves nothing of what the mutant breaks.
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
LONGEST = 600  # seconds of a test file
PARTS = ("bert_jax/", "configs/", "docs/", "launch/", "tests/", "setup.cfg")


class Mutant(NamedTuple):
    name: str
    file: str  # under bert_jax/
    right: str  # stands in it once
    wrong: str
    test: str  # under tests/


# A line that names a mutant, its file and the test that catches it; what stands in that file once, and what instead.
TABLE = r"""
another epsilon | models/heads.py | test_golden.py
- x = layers.LayerNorm(self.epsilon, x.dtype, name="norm")(x)
+ x = layers.LayerNorm(1e-5, x.dtype, name="norm")(x)
erf for tanh | models/layers.py | test_golden.py
- "gelu_tanh": partial(nn.gelu, approximate=True)
+ "gelu_tanh": partial(nn.gelu, approximate=False)
tanh for erf | models/layers.py | test_golden.py
- "gelu": partial(nn.gelu, approximate=False)
+ "gelu": partial(nn.gelu, approximate=True)
a loss without its 1e-5 | objectives/mlm.py | test_golden.py
- batch["masked_weights"].sum() + 1e-5
+ batch["masked_weights"].sum()
scores off by 1e-4 | models/layers.py | test_golden.py
- scale=(width // self.heads) ** -0.5)
+ scale=(1 + 1e-4) * (width // self.heads) ** -0.5)
padded words in the softmax | models/layers.py | models/test_bert.py
- return jnp.where(real, logits + bias, MASKED)
+ return logits + bias
no padding mask | models/attention.py | models/test_bert.py
- scores_BHLM = jnp.where(visible(sequence_ids), scores_BHLM, layers.MASKED)
+ pass
no residual around attention | models/layers.py | test_golden.py
- name="attention_norm")(x + y))
+ name="attention_norm")(y))
a pooler without tanh | models/bert.py | test_golden.py
- return jnp.tanh(self.pooler(
+ return (self.pooler(
dropout that does not scale | models/layers.py | models/test_bert.py
- jnp.where(kept, x * jnp.asarray(1 / (1 - rate), x.dtype), 0)
+ jnp.where(kept, x, 0)
a gradient of the layer norm without its mean | models/layers.py | test_golden.py
- gradient - gradient.mean(-1, keepdims=True) - normal * along
+ gradient - normal * along
bfloat16 sums of gradients | models/layers.py | test_golden.py
- d_bias = gradient.sum(rows, dtype=gradient_dtype)
+ d_bias = gradient.astype(jnp.bfloat16).sum(rows)
packed sequences that see each other | models/attention.py | models/test_packed_losses.py
- visible(sequence_ids), scores_BHLM
+ visible(jnp.minimum(sequence_ids, 1)), scores_BHLM
dropout that forgets the step | step.py | test_step.py
- key = prng.fold(jnp.uint32(prng.key(seed)), state.step.astype(jnp.uint32))
+ key = jnp.uint32(prng.key(seed))
dropout that forgets the seed | step.py | test_step.py
- jnp.uint32(prng.key(seed)), state
+ jnp.uint32(prng.key(0)), state
dropout that forgets the row | objectives/base.py | test_step.py
- keys = prng.fold(place, batch["rows"].astype(jnp.uint32))
+ keys = prng.fold(place, 0 * batch["rows"].astype(jnp.uint32))
the last micro-batch alone | step.py | test_micro_batches.py
- return jax.tree.map(jnp.add, sums, function(rows)), None
+ return jax.tree.map(lambda a, b: b, sums, function(rows)), None
the mean over devices for their sum | parallel/mesh.py | parallel/test_meshes.py
- jax.lax.psum((values, rounded), "data")
+ jax.lax.pmean((values, rounded), "data")
another host's rows | parallel/mesh.py | parallel/test_processes.py
- if device.process_index == process
+ if device.process_index != process
a step that is not finite is applied | step_guard.py | test_step_guard.py
- is_applied = is_finite & ~is_spike if skip_spikes else is_finite
+ is_applied = is_finite | True
steps in a row are not counted | step_guard.py | test_step_guard.py
- row = jnp.where(is_finite, 0, state.row + 1)
+ row = jnp.where(is_finite, 0, 1)
decay on biases | optimizer.py | test_optimizer.py
- not in ("bias", "scale")
+ not in ("scale",)
decay on scales | optimizer.py | test_optimizer.py
- not in ("bias", "scale")
+ not in ("bias",)
bias correction | optimizer.py | test_optimizer.py
- optax.scale_by_adam if config.bias_correction else scale_by_uncorrected_adam
+ optax.scale_by_adam
epsilon inside the root | optimizer.py | test_optimizer.py
- m / (jnp.sqrt(v) + epsilon)
+ m / jnp.sqrt(v + epsilon)
another clip | optimizer.py | test_optimizer.py
- jnp.where(norm < most, u, u / norm * most)
+ jnp.clip(u, -most, most)
a schedule that falls from the end of the warm-up | optimizer.py | test_optimizer.py
- return 1 - step / total
+ return 1 - (step - warmup) / (total - warmup)
Adafactor without factors | optimizer.py | test_optimizer.py
- optax.scale_by_factored_rms()
+ optax.scale_by_factored_rms(factored=False)
unused sentences are lost | data/sentence_pairs.py | data/test_sentence_pairs.py
- following = start + np.where(random, a_size, size)
+ following = start + size
one sentence is no random pair | data/sentence_pairs.py | data/test_sentence_pairs.py
- random = size == 1
+ random = size == 0
a random document that may be one's own | data/sentence_pairs.py | data/test_sentence_pairs.py
- return other + (other >= own)
+ return other + (other > own)
truncation that prefers B | data/sentence_pairs.py | data/test_sentence_pairs.py
- np.maximum(room - b, (room + 1) // 2)
+ np.maximum(room - b, room // 2)
rows that forget the seed | data/sentence_pairs.py | data/test_sentence_pairs.py
- numbers = (rules.seed, prng.PURPOSE[purpose]
+ numbers = (0, prng.PURPOSE[purpose]
masks that forget the epoch | data/stream.py | data/test_stream.py
- key = partial(purpose_key, source.split, source.rules, int(epoch))
+ key = partial(purpose_key, source.split, source.rules, 0)
a padded row that is counted | data/stream.py | data/test_stream.py
- step * size + positions < self.rows
+ step * size + positions <= self.rows
segments off by one | data/assemble.py | data/test_stream.py
- "segments": tf.cast((place > first_sep) & real
+ "segments": tf.cast((place >= first_sep) & real
[CLS] may be masked | data/assemble.py | data/test_stream.py
- "maskable": in_a | in_b,
+ "maskable": in_a | in_b | (place == start),
a mask off by one | data/masking.py | data/test_masking.py
- return prng.fold(keys, tf.cast(places, tf.uint32) - starts, tf.bitwise.right_shift)
+ return prng.fold(keys, tf.cast(places, tf.uint32) - starts + 1, tf.bitwise.right_shift)
82 % for 80 % | data/masking.py | data/test_statistics.py
- masked_below = round(spec.mask_share * 2**32)
+ masked_below = round((spec.mask_share + 0.02) * 2**32)
fewer predictions than 15 % | data/masking.py | data/test_masking.py
- np.rint(spec.mask_rate * np.arange(length + 1))
+ np.floor(spec.mask_rate * np.arange(length + 1))
another hash | prng.py | test_prng.py
- x = (x ^ shift(x, np.uint32(15)))
+ x = (x ^ shift(x, np.uint32(14)))
words of fifty characters are unknown | tokenizers/wordpiece.py | tokenizers/test_wordpiece.py
- LONGEST_WORD = 100
+ LONGEST_WORD = 50
two trainers at one address | runs/lock.py | runs/test_bucket.py
- self.is_lost |= holder.get("nonce") != self.nonce
+ self.is_lost |= False
an address that is no run | runs/workdir.py | runs/test_bucket.py
- names = set(self.bucket.names())
+ names = set()
a store whose bytes are not compared | storage/checksums.py | commands/test_verify.py
- if hashes and digest(path) != expected["sha256"]:
+ if False:
a save that forgets the moments | checkpoints/reader.py | test_ends.py
- ITEMS = ("params", "opt_state")
+ ITEMS = ("params",)
a restore that verifies nothing | checkpoints/reader.py | test_train.py
- reason := problem(path, run, items, trees)
+ reason := ""
a fingerprint that forgets the place | checkpoints/fingerprint.py | checkpoints/test_fingerprint.py
-     first = prng.fold(numbers, bits, jax.lax.shift_right_logical)
-     return jnp.stack([first, prng.mix(first ^ numbers * AGAIN, jax.lax.shift_right_logical)])
+     first = prng.mix(bits + 0 * numbers, jax.lax.shift_right_logical)
+     return jnp.stack([first, prng.mix(first ^ AGAIN, jax.lax.shift_right_logical)])
a workdir that is not a run | runs/workdir.py | runs/test_not_a_run.py
-                     raise BadInput(name)
+                     pass
two trainers in a workdir | runs/lock.py | test_train.py
- fcntl.LOCK_EX | fcntl.LOCK_NB
+ fcntl.LOCK_SH | fcntl.LOCK_NB
half a directory after a failure | storage/atomic.py | storage/test_atomic.py
-         shutil.rmtree(temporary, ignore_errors=True)
-         if isinstance
+         if isinstance
a resumed run with another seed | config.py | test_config.py
- CHANGEABLE = ("mesh",
+ CHANGEABLE = ("seed", "mesh",
preempted is done | runs/signals.py | test_ends.py
- PREEMPTED, INTERRUPTED = 75, 130
+ PREEMPTED, INTERRUPTED = 0, 130
a metric without its weight | runs/metrics.py | test_train.py
- float(total) / float(weight) if weight
+ float(total) if weight
queries for keys | convert/names.py | convert/test_to_huggingface.py
- "attention.self.query", "attention/self/query"
+ "attention.self.key", "attention/self/query"
kernels that are not transposed | convert/names.py | convert/test_to_huggingface.py
- f"{c}/kernel", ("huggingface",)
+ f"{c}/kernel", ()
FLOPs without the backward pass | models/bert.py | models/test_bert.py
- return 3.0 * (model.layers
+ return 1.0 * (model.layers
links of half the speed | planning/topology.py | planning/test_topology.py
- return links * one.chip.link
+ return links * one.chip.link / 2
"""


def read(table: str) -> list[Mutant]:
    found = []
    for line in table.strip().splitlines():
        if line[:2] == "- ":
            found[-1][2].append(line[2:])
        elif line[:2] == "+ ":
            found[-1][3].append(line[2:])
        else:
            name, file, test = line.split(" | ")
            found.append((name, file, [], [], test))
    return [
        Mutant(name, file, "\n".join(right), "\n".join(wrong), test)
        for name, file, right, wrong, test in found
    ]


MUTANTS = read(TABLE)


def copy_product(place: Path) -> None:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    for name in names.stdout.splitlines():
        if name.startswith(PARTS) and (ROOT / name).is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, place / name)


def run_tests(place: Path, test: str) -> int:
    """The exit code of pytest: 0 passed, 1 failed; -1 after too long a time."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    command += ["-p", "no:xdist", f"tests/{test}"]
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    try:
        return subprocess.run(
            command, cwd=place, env=variables, capture_output=True, timeout=LONGEST
        ).returncode
    except subprocess.TimeoutExpired:
        return -1


def run(mutant: Mutant, place: Path) -> str:
    """`caught`, or why not. place: for the copy."""
    copy_product(place)
    file = place / "bert_jax" / mutant.file
    text = file.read_text()
    if text.count(mutant.right) != 1:
        return f"bert_jax/{mutant.file} has the line {text.count(mutant.right)} times"
    file.write_text(text.replace(mutant.right, mutant.wrong))
    code = run_tests(place, mutant.test)
    return "caught" if code == 1 else f"tests/{mutant.test} ended with {code}"


def main(names: list[str]) -> int:
    chosen = [mutant for mutant in MUTANTS if not names or mutant.name in names]

    def tried(mutant: Mutant) -> bool:
        with tempfile.TemporaryDirectory() as place:
            result = run(mutant, Path(place))
        print(f"{result:<8} {mutant.name} ({mutant.test})", flush=True)
        return result == "caught"

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(tried, chosen))
    print(f"{sum(results)} of {len(results)} mutants caught")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

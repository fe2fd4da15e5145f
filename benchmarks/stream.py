"""The input stream: time to the first batch, real tokens per second, peak memory, and resuming at any step.

python benchmarks/stream.py [--store DIR | --tokens 100e6 --under /tmp] [--seconds 5]

Without --store it generates a store of random tokens in a new directory under --under, and deletes it afterwards.
Sentences have about 25 tokens, documents about 600; 7e9 tokens take 16 GB, and each index 2 GB. Cold: no index is
cached (files may be in the page cache). Cached: a second start.

Prints Markdown rows. Every row is measured in a new process. Its peak is the maximum resident set size;
"files" are the pages of mapped files and libraries at the end, "own" is the rest. If transformers and PyTorch are
installed (extra `parity`), it also measures DataCollatorForLanguageModeling, which only masks rows in memory.
"""

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

LONGER = dict(length=512, batch=64)


def measure(directory, epoch: int, offset: int, steps: int, seconds: float, changes: dict) -> None:
    """Prints measurements of a stream from step `offset` of `epoch`, over `steps` batches or, if 0, over `seconds`.

    A negative offset starts in the previous epoch. `run` calls this in a new process.
    """
    import numpy as np

    from bert_jax import config as configs
    from bert_jax.data import batch as batches
    from bert_jax.data import store, stream
    from bert_jax.tasks.text import sentence_pairs

    begin = time.perf_counter()
    opened = store.open_store(directory)
    # Every third piece continues a word, about as in a WordPiece vocabulary.
    word_starts = np.arange(opened.manifest["vocabulary"]) % 3 > 0
    config = configs.load("bert_base", [f"{key}={value}" for key, value in changes.items()])
    phase = configs.phases(config)[0]
    dataset = sentence_pairs.make(config, opened, word_starts)
    pipeline = stream.Pipeline(dataset, phase, "train", config.seed, phase.batch)
    if epoch:
        offset += epoch * pipeline.steps_per_epoch()
    source = stream.batches(pipeline, offset, offset + (steps or 10**9))
    next_batch = next(source)
    first = time.perf_counter() - begin
    tokens = 0
    started = now = time.perf_counter()
    cpu_started = time.process_time()
    for next_batch in source:
        tokens += int((next_batch["sequence_ids"] > 0).sum())
        now = time.perf_counter()
        if not steps and now - started > seconds:
            break
    rates = dict(
        rate=tokens / max(now - started, 1e-9),
        cpu_rate=tokens / max(time.process_time() - cpu_started, 1e-9),
    )
    print(json.dumps(dict(first=first, digest=batches.digest(next_batch), **rates, **memory())))


def collate(seconds: float, length: int = 128, batch: int = 256, predictions: int = 0) -> None:
    """Prints measurements of transformers' masking collator on full rows, over `seconds`."""
    import torch
    from transformers import BertTokenizer, DataCollatorForLanguageModeling

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces = [*special, *(f"piece{number}" for number in range(30522 - len(special)))]
    tokenizer = BertTokenizer(vocab={piece: number for number, piece in enumerate(pieces)})
    collator = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)
    rows = torch.randint(len(special), len(pieces), (64 * batch, length))
    rows[:, 0] = tokenizer.cls_token_id
    rows[:, -1] = tokenizer.sep_token_id
    tokens = 0
    started = now = time.perf_counter()
    cpu_started = time.process_time()
    while now - started < seconds:
        first = torch.randint(len(rows) - batch, ()).item()
        arrays = collator([{"input_ids": row} for row in rows[first : first + batch]])
        tokens += arrays["labels"].numel()
        now = time.perf_counter()
    rates = dict(rate=tokens / (now - started))
    print(json.dumps(rates | dict(cpu_rate=tokens / (time.process_time() - cpu_started))))


def memory() -> dict[str, float]:
    """Returns the memory of this process, in GB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    values = {line.split(":")[0]: line.split()[1:] for line in lines}
    names = dict(peak="VmHWM", own="RssAnon", files="RssFile")
    return {name: int(values[key][0]) * 1024 / 1e9 for name, key in names.items()}


def run(directory, epoch=0, offset=0, steps=0, seconds=0.0, **changes) -> dict:
    """Runs `measure` in a new process; returns its numbers and `seconds`, which includes imports."""
    begin = time.perf_counter()
    numbers = call(f"measure{(str(directory), epoch, offset, steps, seconds, changes)}")
    return numbers | {"seconds": time.perf_counter() - begin}


def call(expression: str) -> dict:
    """Returns the JSON that a call of a function of this file prints in a new process."""
    code = f"import sys; sys.path[:0] = [{str(ROOT)!r}]; from benchmarks import stream"
    code += f"; stream.{expression}"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if result.returncode:
        sys.exit(result.stderr)
    return json.loads(result.stdout)


def show(name: str, target: str, value: str, measured: dict, reference: str = "") -> None:
    peak, own, files = (measured[key] for key in ("peak", "own", "files"))
    reached = f"{value}; peak {peak:.2f} GB (own {own:.2f}, files {files:.2f})"
    print(f"| stream, {name} | {target} | {reached} | {reference} |", flush=True)


def time_first(directory) -> None:
    for epoch in (0, 1):
        delete_indexes(directory)
        for state, target in (("cold", "2 minutes"), ("cached", "10 s")):
            measured = run(directory, epoch, steps=1)
            value = f"{measured['first']:.2f} s, with imports {measured['seconds']:.2f} s"
            show(f"first batch, epoch {epoch}, {state}", target, value, measured)


def throughput(directory, seconds: float) -> None:
    cases = [("nsp", "token"), ("nsp", "whole_word"), ("sop", "token"), ("none", "token")]
    if (Path(directory) / "train" / "tokens.npy").stat().st_size > 2e9:
        cases = cases[:2]  # the index of each other case would take a minute
    for length, shape in ((128, {}), (512, LONGER)):
        reference = collated(seconds, shape)
        for task, masking in cases:
            changes = {f"phases.short.{key}": value for key, value in shape.items()}
            changes["phases.short.max_predictions"] = round(0.15 * length)
            changes |= {"task.pair_task": task, "task.masking": masking}
            run(directory, steps=1, **changes)  # builds the index
            measured = run(directory, seconds=seconds, **changes)
            name = f"length {length}, pair_task {task}, masking {masking}, real tokens"
            show(name, "10M per second", rates(measured), measured, reference)
            reference = ""
        delete_indexes(directory)  # the indexes of large stores would fill the disk


def collated(seconds: float, shape: dict) -> str:
    if not all(importlib.util.find_spec(name) for name in ("torch", "transformers")):
        return ""
    return f"{rates(call(f'collate({seconds}, **{shape})'))} (DataCollatorForLanguageModeling, masks only)"


def rates(measured: dict) -> str:
    clock, cpu = (measured[key] / 1e6 for key in ("rate", "cpu_rate"))
    return f"{clock:.1f}M per second, {cpu:.1f}M per CPU second"


def compare_resumed(directory) -> None:
    """Compares a batch of each of two epochs, reached from an earlier step and resumed at; exits 1 if they differ."""
    for name, epoch, offset, steps in (("first", 0, 0, 3000), ("second", 1, -20, 500)):
        reached = run(directory, epoch, offset, steps)
        resumed = run(directory, epoch, offset + steps - 1, 1)
        is_same = reached["digest"] == resumed["digest"]
        title = f"step {offset + steps - 1} of the {name} epoch, from an earlier step"
        value = f"{'equal' if is_same else 'DIFFERENT'}, SHA-256 {reached['digest'][:16]}"
        show(title, "equal", value, reached, f"{resumed['digest'][:16]}, resumed there")
        if not is_same:
            sys.exit(1)


def delete_indexes(directory) -> None:
    for path in (Path(directory) / "index").glob("train-*"):
        path.unlink()


def report(directory, seconds: float) -> None:
    time_first(directory)
    compare_resumed(directory)
    throughput(directory, seconds)
    delete_indexes(directory)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--store", help="directory of a token store")
    parser.add_argument("--tokens", type=float, default=100e6, help="size of a generated store")
    parser.add_argument("--under", help="its parent directory; default: the system's temporary one")
    parser.add_argument("--seconds", type=float, default=5, help="duration of each measurement")
    arguments = parser.parse_args()
    if arguments.store:
        return report(arguments.store, arguments.seconds)
    from kits.stores import synthetic_store

    with tempfile.TemporaryDirectory(dir=arguments.under) as directory:
        begin = time.perf_counter()
        store = synthetic_store(Path(directory) / "store", int(arguments.tokens))
        tokens = len(store.splits["train"].tokens)
        print(f"generated a store of {tokens:,} tokens in {time.perf_counter() - begin:.0f} s")
        report(store.path, arguments.seconds)


if __name__ == "__main__":
    main()

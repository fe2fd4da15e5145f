"""The stream: time to its first batch, real tokens a second, peak memory, and that any batch can be reached
from anywhere.

python benchmarks/stream.py [--store DIR | --tokens 100e6 --under /tmp] [--seconds 5]

Without --store it makes a store of random tokens in a new directory under --under and deletes it
afterwards: sentences of about 25 tokens, documents of about 600; 7e9 tokens take 16 GB, and each
index 2 GB. Cold: no index is cached (files may be in the page cache); cached: a second start. Every
line is a process of its own, and its peak is what /usr/bin/time calls the maximum resident set size;
"files" are pages of mapped files and libraries at its end, "own" is the rest.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

LONGER = dict(length=512, batch=64, predictions=76)


def measure(directory, epoch: int, offset: int, steps: int, seconds: float, changes: dict) -> None:
    """Prints what a stream from step `offset` of `epoch` on does: `steps` batches or, if 0, `seconds`."""
    import numpy as np

    from bert_jax import batch as batches
    from bert_jax.data import store, stream
    from bert_jax.data.packing import Epochs

    begin = time.perf_counter()
    opened = store.open_store(directory)
    # Every third piece continues a word: about what a WordPiece vocabulary has.
    word_starts = np.arange(opened.manifest["vocabulary"]) % 3 > 0
    spec = stream.Spec(1, 0, 128, 256, 20, "nsp", "token", 0.15, 0.8, 0.1, 0.1)._replace(**changes)
    if epoch:
        offset += epoch * stream.steps_per_epoch(
            Epochs(opened, "train", spec.rules, spec.sequences), spec
        )
    made = stream.train_batches(opened, word_starts, spec, offset, offset + (steps or 10**9))
    next_batch = next(made)
    first, tokens, now = time.perf_counter() - begin, 0, time.perf_counter()
    started = now
    for next_batch in made:
        tokens += int((next_batch["sequence_ids"] > 0).sum())
        now = time.perf_counter()
        if not steps and now - started > seconds:
            break
    rate = tokens / max(now - started, 1e-9)
    print(json.dumps(dict(first=first, rate=rate, digest=batches.digest(next_batch), **memory())))


def memory() -> dict[str, float]:
    """Of this process, in GB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    values = {line.split(":")[0]: line.split()[1:] for line in lines}
    names = dict(peak="VmHWM", own="RssAnon", files="RssFile")
    return {name: int(values[key][0]) * 1024 / 1e9 for name, key in names.items()}


def run(directory, epoch=0, offset=0, steps=0, seconds=0.0, **changes) -> dict:
    """`measure` in a new process; adds its `seconds` with imports."""
    arguments = str(directory), epoch, offset, steps, seconds, changes
    code = f"import sys; sys.path[:0] = [{str(ROOT)!r}]; from benchmarks import stream; stream.measure(*{arguments})"
    begin = time.perf_counter()
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        sys.exit(result.stderr)
    return json.loads(result.stdout) | {"seconds": time.perf_counter() - begin}


def show(name: str, value: str, measured: dict) -> None:
    peak, own, files = (measured[key] for key in ("peak", "own", "files"))
    print(f"{name}: {value}; peak {peak:.2f} GB (own {own:.2f}, files {files:.2f})", flush=True)


def time_first(directory) -> None:
    for epoch in (0, 1):
        forget(directory)
        for state in ("cold", "cached"):
            measured = run(directory, epoch, steps=1)
            value = f"{measured['first']:.2f} s, with imports {measured['seconds']:.2f} s"
            show(f"first batch, epoch {epoch}, {state}", value, measured)


def throughput(directory, seconds: float) -> None:
    kinds = [("nsp", "token"), ("nsp", "whole_word"), ("sop", "token"), ("none", "token")]
    if (Path(directory) / "train" / "tokens.npy").stat().st_size > 2e9:
        kinds = kinds[:2]  # each of the others would build an index of its own for a minute
    for length, shape in ((128, {}), (512, LONGER)):
        for pairs, masking in kinds:
            run(directory, steps=1, pairs=pairs, **shape)  # its index
            measured = run(directory, seconds=seconds, pairs=pairs, masking=masking, **shape)
            name = f"length {length}, pairs {pairs}, masking {masking}"
            show(name, f"{measured['rate'] / 1e6:.1f}M tokens/s", measured)
        forget(directory)  # or large stores would fill the disk


def same_from_anywhere(directory) -> None:
    """A batch of the first epoch and one of the second, come by and started at."""
    for name, epoch, offset, steps in (("first", 0, 0, 3000), ("second", 1, -20, 500)):
        come_by = run(directory, epoch, offset, steps)
        started = run(directory, epoch, offset + steps - 1, 1)
        same = come_by["digest"] == started["digest"]
        value = f"{'the same' if same else 'DIFFERENT'}, SHA-256 {started['digest'][:16]}"
        show(
            f"step {offset + steps - 1} of the {name} epoch, come by and started at", value, come_by
        )
        if not same:
            sys.exit(1)


def forget(directory) -> None:
    for path in (Path(directory) / "index").glob("train-*-seed1-*"):
        path.unlink()


def report(directory, seconds: float) -> None:
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    time_first(directory)
    same_from_anywhere(directory)
    throughput(directory, seconds)
    forget(directory)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--store", help="directory of a token store")
    parser.add_argument("--tokens", type=float, default=100e6, help="of the store that is made")
    parser.add_argument("--under", help="where it is made; the system's temporary directory")
    parser.add_argument("--seconds", type=float, default=5, help="of each measurement")
    arguments = parser.parse_args()
    if arguments.store:
        return report(arguments.store, arguments.seconds)
    from worlds import synthetic_store

    with tempfile.TemporaryDirectory(dir=arguments.under) as directory:
        begin = time.perf_counter()
        made = synthetic_store(Path(directory) / "store", int(arguments.tokens))
        tokens = len(made.splits["train"].tokens)
        print(f"a store of {tokens:,} tokens, made in {time.perf_counter() - begin:.0f} s")
        report(made.path, arguments.seconds)


if __name__ == "__main__":
    main()

"""Real tokens a second of the stream, and the time to its first batch.

python benchmarks/stream.py [--store DIR] [--seconds 5]

Without --store it makes a store of 100M random tokens in a temporary directory: sentences of about
25 tokens, documents of about 600. Cold: no index is cached (files may be in the page cache);
cached: a second start. The first batch is timed in a new process after its imports, and with them.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

FIRST = "import sys; sys.path[:0] = [{root!r}]; from benchmarks import stream; stream.first({store!r}, {epoch})"


def make_spec(**changes):
    from bert_jax.data import stream

    base = stream.Spec(1, 0, 128, 256, 20, "nsp", "token", 0.15, 0.8, 0.1, 0.1)
    return base._replace(**changes)


def open_inputs(directory):
    import numpy as np

    from bert_jax.data import store

    opened = store.open_store(directory)
    # Every third piece continues a word: about what a WordPiece vocabulary has.
    return opened, np.arange(opened.manifest["vocabulary"]) % 3 > 0


def throughput(directory, seconds: float, **changes) -> float:
    """Real tokens a second, without the first second."""
    from bert_jax.data import stream

    tokens, started, begin = 0, None, time.perf_counter()
    for batch in stream.train_batches(*open_inputs(directory), make_spec(**changes), 0, 10**9):
        now = time.perf_counter()
        if started is None and now - begin > 1:
            started, tokens = now, 0
        elif started and now - started > seconds:
            return tokens / (now - started)
        tokens += (batch["sequence_ids"] > 0).sum()


def first(directory, epoch: int) -> None:
    """Prints the seconds to the first batch of an epoch; also without importing TensorFlow."""
    from bert_jax.data import stream
    from bert_jax.data.index import Indexes

    begin = time.perf_counter()
    store, word_starts = open_inputs(directory)
    spec = make_spec()
    step = epoch and epoch * stream.steps_per_epoch(Indexes(store, "train", spec.rules), spec)
    next(stream.train_batches(store, word_starts, spec, step, step + 1))
    print(time.perf_counter() - begin)


def time_first(directory, epoch: int) -> str:
    begin = time.perf_counter()
    command = [
        sys.executable,
        "-c",
        FIRST.format(root=str(ROOT), store=str(directory), epoch=epoch),
    ]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return f"{float(result.stdout):.2f} s, with imports {time.perf_counter() - begin:.2f} s"


def forget(directory) -> None:
    for path in (Path(directory) / "index").glob("train-*-seed1-*"):
        path.unlink()


def report(directory, seconds: float) -> None:
    for epoch in (0, 30):
        forget(directory)
        for state in ("cold", "cached"):
            print(
                f"first batch, epoch {epoch:2}, {state}: {time_first(directory, epoch)}", flush=True
            )
    for length, batch, predictions in ((128, 256, 20), (512, 64, 76)):
        for pairs, masking in (
            ("nsp", "token"),
            ("sop", "token"),
            ("none", "token"),
            ("nsp", "whole_word"),
        ):
            shape = dict(length=length, batch=batch, predictions=predictions)
            rate = throughput(directory, seconds, pairs=pairs, masking=masking, **shape)
            print(
                f"length {length}, pairs {pairs}, masking {masking}: {rate / 1e6:.1f}M tokens/s",
                flush=True,
            )
    forget(directory)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--store", help="directory of a token store")
    parser.add_argument("--seconds", type=float, default=5, help="of each measurement")
    arguments = parser.parse_args()
    if arguments.store:
        return report(arguments.store, arguments.seconds)
    from worlds import synthetic_store

    with tempfile.TemporaryDirectory() as directory:
        synthetic_store(Path(directory) / "store", 100_000_000)
        report(Path(directory) / "store", arguments.seconds)


if __name__ == "__main__":
    main()

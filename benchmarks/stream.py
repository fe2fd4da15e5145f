"""The stream: time to its first batch, real tokens a second, peak memory, and that any batch can be reached
from anywhere.

python benchmarks/stream.py [--store DIR | --tokens 100e6 --under /tmp] [--seconds 5]

Without --store it makes a store of random tokens in a new directory under --under and deletes it
afterwards: sentences of about 25 tokens, documents of about 600; 7e9 tokens take 16 GB, and each
index 2 GB. Cold: no index is cached (files may be in the page cache); cached: a second start. Prints
Markdown rows. Every row is a process of its own, and its peak is what /usr/bin/time calls the maximum
resident set size; "files" are pages of mapped files and libraries at its end, "own" is the rest. Where
transformers and PyTorch are installed (extra `parity`), their DataCollatorForLanguageModeling stands
beside it: masks alone, of rows that lie ready.
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

LONGER = dict(length=512, batch=64, max_predictions=76)


def measure(directory, epoch: int, offset: int, steps: int, seconds: float, changes: dict) -> None:
    """Prints what a stream from step `offset` of `epoch` on does: `steps` batches or, if 0, `seconds`."""
    import numpy as np

    from bert_jax.data import batch as batches
    from bert_jax.data import batch_spec, store, stream
    from bert_jax.data.epoch_order import Epochs

    begin = time.perf_counter()
    opened = store.open_store(directory)
    # Every third piece continues a word: about what a WordPiece vocabulary has.
    word_starts = np.arange(opened.manifest["vocabulary"]) % 3 > 0
    spec = batch_spec.Spec(1, 0, 128, 256, 20, "nsp", "token", 0.15, 0.8, 0.1, 0.1)._replace(
        **changes
    )
    if epoch:
        offset += epoch * stream.steps_per_epoch(
            Epochs(opened, "train", spec.rules, spec.max_packed), spec
        )
    made = stream.train_batches(opened, word_starts, spec, offset, offset + (steps or 10**9))
    next_batch = next(made)
    first, tokens, now = time.perf_counter() - begin, 0, time.perf_counter()
    started, processors = now, time.process_time()
    for next_batch in made:
        tokens += int((next_batch["sequence_ids"] > 0).sum())
        now = time.perf_counter()
        if not steps and now - started > seconds:
            break
    rates = dict(
        rate=tokens / max(now - started, 1e-9),
        processor_rate=tokens / max(time.process_time() - processors, 1e-9),
    )
    print(json.dumps(dict(first=first, digest=batches.digest(next_batch), **rates, **memory())))


def collate(seconds: float, length: int = 128, batch: int = 256, predictions: int = 0) -> None:
    """Prints what the collator of transformers does with full rows for so many seconds."""
    import torch
    from transformers import BertTokenizer, DataCollatorForLanguageModeling

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces = [*special, *(f"piece{number}" for number in range(30522 - len(special)))]
    known = BertTokenizer(vocab={piece: number for number, piece in enumerate(pieces)})
    collator = DataCollatorForLanguageModeling(known, mlm_probability=0.15)
    rows = torch.randint(len(special), len(pieces), (64 * batch, length))
    rows[:, 0], rows[:, -1] = known.cls_token_id, known.sep_token_id
    tokens, now = 0, time.perf_counter()
    started, processors = now, time.process_time()
    while now - started < seconds:
        first = torch.randint(len(rows) - batch, ()).item()
        tokens += collator([{"input_ids": row} for row in rows[first : first + batch]])[
            "labels"
        ].numel()
        now = time.perf_counter()
    rates = dict(rate=tokens / (now - started))
    print(json.dumps(rates | dict(processor_rate=tokens / (time.process_time() - processors))))


def memory() -> dict[str, float]:
    """Of this process, in GB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    values = {line.split(":")[0]: line.split()[1:] for line in lines}
    names = dict(peak="VmHWM", own="RssAnon", files="RssFile")
    return {name: int(values[key][0]) * 1024 / 1e9 for name, key in names.items()}


def run(directory, epoch=0, offset=0, steps=0, seconds=0.0, **changes) -> dict:
    """`measure` in a new process; adds its `seconds` with imports."""
    begin = time.perf_counter()
    said = call(f"measure{(str(directory), epoch, offset, steps, seconds, changes)}")
    return said | {"seconds": time.perf_counter() - begin}


def call(what: str) -> dict:
    """What a function of this file prints in a new process."""
    code = (
        f"import sys; sys.path[:0] = [{str(ROOT)!r}]; from benchmarks import stream; stream.{what}"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if result.returncode:
        sys.exit(result.stderr)
    return json.loads(result.stdout)


def show(name: str, target: str, value: str, measured: dict, beside: str = "") -> None:
    peak, own, files = (measured[key] for key in ("peak", "own", "files"))
    reached = f"{value}; peak {peak:.2f} GB (own {own:.2f}, files {files:.2f})"
    print(f"| stream, {name} | {target} | {reached} | {beside} |", flush=True)


def time_first(directory) -> None:
    for epoch in (0, 1):
        forget(directory)
        for state, target in (("cold", "2 minutes"), ("cached", "10 s")):
            measured = run(directory, epoch, steps=1)
            value = f"{measured['first']:.2f} s, with imports {measured['seconds']:.2f} s"
            show(f"first batch, epoch {epoch}, {state}", target, value, measured)


def throughput(directory, seconds: float) -> None:
    kinds = [("nsp", "token"), ("nsp", "whole_word"), ("sop", "token"), ("none", "token")]
    if (Path(directory) / "train" / "tokens.npy").stat().st_size > 2e9:
        kinds = kinds[:2]  # each of the others would build an index of its own for a minute
    for length, shape in ((128, {}), (512, LONGER)):
        beside = collated(seconds, shape)
        for pairs, masking in kinds:
            run(directory, steps=1, pairs=pairs, **shape)  # its index
            measured = run(directory, seconds=seconds, pairs=pairs, masking=masking, **shape)
            name = f"length {length}, pairs {pairs}, masking {masking}, real tokens"
            show(name, "10M a second", rates(measured), measured, beside)
            beside = ""
        forget(directory)  # or large stores would fill the disk


def collated(seconds: float, shape: dict) -> str:
    if not all(importlib.util.find_spec(name) for name in ("torch", "transformers")):
        return ""
    return f"{rates(call(f'collate({seconds}, **{shape})'))} (masks alone, DataCollatorForLanguageModeling)"


def rates(measured: dict) -> str:
    clock, processors = (measured[key] / 1e6 for key in ("rate", "processor_rate"))
    return f"{clock:.1f}M a second by the clock, {processors:.1f}M by one of processors"


def same_from_anywhere(directory) -> None:
    """A batch of the first epoch and one of the second, come by and started at."""
    for name, epoch, offset, steps in (("first", 0, 0, 3000), ("second", 1, -20, 500)):
        come_by = run(directory, epoch, offset, steps)
        started = run(directory, epoch, offset + steps - 1, 1)
        same = come_by["digest"] == started["digest"]
        what = f"step {offset + steps - 1} of the {name} epoch, come by"
        value = f"{'equal' if same else 'DIFFERENT'}, SHA-256 {come_by['digest'][:16]}"
        show(what, "equal", value, come_by, f"{started['digest'][:16]}, started there")
        if not same:
            sys.exit(1)


def forget(directory) -> None:
    for path in (Path(directory) / "index").glob("train-*"):
        path.unlink()


def report(directory, seconds: float) -> None:
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
    from kits.stores import synthetic_store

    with tempfile.TemporaryDirectory(dir=arguments.under) as directory:
        begin = time.perf_counter()
        made = synthetic_store(Path(directory) / "store", int(arguments.tokens))
        tokens = len(made.splits["train"].tokens)
        print(f"a store of {tokens:,} tokens, made in {time.perf_counter() - begin:.0f} s")
        report(made.path, arguments.seconds)


if __name__ == "__main__":
    main()

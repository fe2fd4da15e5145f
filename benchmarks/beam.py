"""prepare by a pool and on Apache Beam (DirectRunner), two workers each, in turns: seconds, CPU seconds, equal stores.

    python benchmarks/beam.py FILE [--format wiki] [--vocabulary VOCABULARY] [--turns 3]

A FILE.xz is unpacked before. CPU seconds are those of all processes, and say more where others work beside.
"""

import argparse
import filecmp
import lzma
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WAYS = {
    "pool": ["--config.corpus.workers=2"],
    "beam": ["--runner=DirectRunner", "--"]
    + ["--direct_running_mode=multi_processing", "--direct_num_workers=2"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--format", default="wiki")
    parser.add_argument("--vocabulary", type=Path, help="default: one is trained")
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        compare(options, Path(scratch))


def compare(options, scratch: Path) -> None:
    text, took = unpacked(options.file, scratch / "text"), {way: [] for way in WAYS}
    keys = {"corpus.source": text, "corpus.format": options.format}
    if options.vocabulary:
        keys["tokenizer.path"] = options.vocabulary.resolve()
    for turn in range(options.turns):
        for way in WAYS:
            store = scratch / f"{way}-{turn}"
            took[way].append(prepare(way, keys | {"store": store}))
            seconds, cpu = took[way][-1]
            print(f"{way}: {seconds:.1f} s, {cpu:.1f} s of CPU, load {os.getloadavg()[0]:.1f}")
            if store != scratch / "pool-0":
                print(
                    f"  the first pool's store: {'equal' if equal(scratch / 'pool-0', store) else 'DIFFERS'}"
                )
                shutil.rmtree(store)
    pairs = zip(took["pool"], took["beam"], strict=True)
    ratios = [[b / p for p, b in zip(pool, beam, strict=True)] for pool, beam in pairs]
    for name, values in zip(("seconds", "CPU seconds"), zip(*ratios, strict=True), strict=True):
        print(f"{name}, Beam's over the pool's: median {statistics.median(values):.2f}")


def unpacked(file: Path, path: Path) -> Path:
    if file.suffix != ".xz":
        return file.resolve()
    with lzma.open(file) as source, open(path, "wb") as target:
        shutil.copyfileobj(source, target)
    return path


def prepare(way: str, keys: dict) -> tuple[float, float]:
    """(seconds, CPU seconds of all processes that were waited for)."""
    command = [sys.executable, "-m", "bert_jax", "prepare", "--config", "bert_base"]
    command += [f"--config.{key}={value}" for key, value in keys.items()]
    start, before = time.monotonic(), used()
    subprocess.run(command + WAYS[way], check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - start, used() - before


def used() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def equal(one: Path, other: Path) -> bool:
    names = [
        [path.relative_to(top) for path in sorted(top.rglob("*")) if path.is_file()]
        for top in (one, other)
    ]
    same = names[0] == names[1]
    return same and not any(filecmp.cmpfiles(one, other, names[0], shallow=False)[1:])


if __name__ == "__main__":
    main()

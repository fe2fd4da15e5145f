"""Speed of our sentence rules, and where another splitter disagrees.

    python benchmarks/sentences.py FILE [--other NAME] [--turns 3]

FILE is text (plain or .xz), a paragraph a line; markup lines are passed over. NAME is sentencex, blingfire or
pysbd, installed beside this. Prints a Markdown row, by seconds of processors, of both in turns, and examples of where
they differ. Read the examples: the counts say how often two splitters differ, not who is right.
"""

import argparse
import importlib
import itertools
import lzma
import random
import statistics
import sys
import time
from pathlib import Path

from bert_jax.data.sources.sentences import split_sentences


def other_splitter(name: str, language: str):
    try:
        library = importlib.import_module(name)
    except ModuleNotFoundError:
        print(f"sentences.py: {name}: not installed; pip install {name}", file=sys.stderr)
        sys.exit(2)
    if name == "blingfire":
        return lambda line: library.text_to_sentences(line).split("\n")
    if name == "pysbd":
        return library.Segmenter(language=language, clean=False).segment
    return lambda line: library.segment(language, line)


def read(path: str, megabytes: float) -> list[str]:
    lines, size = [], 0
    with (lzma.open if path.endswith(".xz") else open)(path, "rt", encoding="utf-8") as file:
        for line in filter(None, map(str.strip, file)):
            if not line.startswith("<"):
                lines.append(line)
                size += len(line.encode())
            if size > megabytes * 1e6:
                break
    return lines


def boundaries(sentences: list[str]) -> set[int]:
    """Where sentences end, in characters that are no white space; the end of the line is none."""
    sizes = [len("".join(sentence.split())) for sentence in sentences]
    ends = list(itertools.accumulate(sizes))
    return set(ends[:-1]) - {0, ends[-1]} if ends else set()


def show(line: str, boundary: int) -> str:
    places = [place for place, character in enumerate(line) if not character.isspace()]
    cut = places[boundary - 1] + 1
    return f"{line[max(0, cut - 50) : cut]} ‖ {line[cut : cut + 40].strip()}"


def timed(split, lines: list[str]) -> tuple[list[list[str]], float]:
    """-> sentences of each line, megabytes a second of processors."""
    start = time.process_time()
    result = [split(line) for line in lines]
    seconds = time.process_time() - start
    return result, sum(len(line.encode()) for line in lines) / 1e6 / seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("--other", default="", help="sentencex, blingfire or pysbd")
    parser.add_argument("--language", default="en", help="what the other one is told")
    parser.add_argument("--megabytes", type=float, default=5)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--examples", type=int, default=20)
    options = parser.parse_args()
    sides = {"ours": split_sentences}
    if options.other:
        sides[options.other] = other_splitter(options.other, options.language)
    lines = read(options.file, options.megabytes)
    found, rates = {}, {name: [] for name in sides}
    for _ in range(options.turns):
        for name, split in sides.items():
            found[name], rate = timed(split, lines)
            rates[name].append(rate)
    said = [
        f"{sum(map(len, found[name])):,} sentences at {statistics.median(rates[name]):.1f} ({name})"
        for name in sides
    ]
    what = f"{Path(options.file).name}, {options.megabytes:g} MB, MB by a second of processors"
    print(f"| sentences, {what} | - | {said[0]} | {''.join(said[1:])} |")
    if options.other:
        differences(lines, found["ours"], found[options.other], options)


def differences(lines: list[str], ours: list, theirs: list, options) -> None:
    pairs = [(boundaries(a), boundaries(b)) for a, b in zip(ours, theirs, strict=True)]
    print(f"boundaries in both: {sum(len(a & b) for a, b in pairs):,}")
    only = {"ours": lambda a, b: a - b, options.other: lambda a, b: b - a}
    for name, differ in only.items():
        found = [(n, end) for n, (a, b) in enumerate(pairs) for end in sorted(differ(a, b))]
        print(f"only in {name}: {len(found):,}")
        chosen = random.Random(0).sample(found, min(options.examples, len(found)))
        for number, end in chosen:
            print(f"    {show(lines[number], end)}")


if __name__ == "__main__":
    main()

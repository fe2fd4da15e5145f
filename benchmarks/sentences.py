"""Speed of our sentence rules, and where another splitter disagrees.

    python benchmarks/sentences.py FILE [--other NAME]

FILE is text (plain or .xz), a paragraph a line; markup lines are passed over. NAME is sentencex, blingfire or
pysbd, installed beside this. Read the examples: the counts say how often two splitters differ, not who is right.
"""

import argparse
import importlib
import itertools
import lzma
import random
import sys
import time

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


def timed(name: str, split, lines: list[str]) -> list[list[str]]:
    start = time.process_time()
    result = [split(line) for line in lines]
    seconds = time.process_time() - start
    megabytes = sum(len(line.encode()) for line in lines) / 1e6
    print(f"{name}: {sum(map(len, result)):,} sentences, {megabytes / seconds:.1f} MB/s")
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("--other", default="", help="sentencex, blingfire or pysbd")
    parser.add_argument("--language", default="en", help="what the other one is told")
    parser.add_argument("--megabytes", type=float, default=5)
    parser.add_argument("--examples", type=int, default=20)
    arguments = parser.parse_args()
    lines = read(arguments.file, arguments.megabytes)
    ours = timed("ours", split_sentences, lines)
    if not arguments.other:
        return
    splitter = other_splitter(arguments.other, arguments.language)
    theirs = timed(arguments.other, splitter, lines)
    pairs = [(boundaries(a), boundaries(b)) for a, b in zip(ours, theirs, strict=True)]
    print(f"boundaries in both: {sum(len(a & b) for a, b in pairs):,}")
    only = {"ours": lambda a, b: a - b, arguments.other: lambda a, b: b - a}
    for name, differ in only.items():
        found = [(n, end) for n, (a, b) in enumerate(pairs) for end in sorted(differ(a, b))]
        print(f"only in {name}: {len(found):,}")
        chosen = random.Random(0).sample(found, min(arguments.examples, len(found)))
        for number, end in chosen:
            print(f"    {show(lines[number], end)}")


if __name__ == "__main__":
    main()

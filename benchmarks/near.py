"""Near duplicates that prepare's filter finds, beside Jaccard's similarity itself, which it estimates.

    python benchmarks/near.py VOCABULARY FILE [--documents 1000] [--thresholds 0.8 0.7 0.5] [--shares 0.01 0.02 0.05]

FILE is WikiExtractor's (plain or .xz). For each share a copy is made of every document, in which as many of its words
are replaced by words from anywhere. Prints a Markdown row for each threshold: the share of copies that the filter
drops, and of those whose similarity is over the threshold by the sets of their shingles, compared one by one; of the
documents themselves the number dropped.
"""

import random
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT))

from benchmarks.sentences import read  # noqa: E402
from bert_jax.cli import Parser, positive  # noqa: E402
from bert_jax.data.preparation import near, shards, stages  # noqa: E402
from bert_jax.errors import BadInput  # noqa: E402
from bert_jax.tokenizers import tokenizer  # noqa: E402

WORDS = 200  # of a document


def main(arguments: list[str] | None = None) -> int:
    parser = Parser(description=__doc__.splitlines()[0])
    parser.add_argument("vocabulary", type=Path, metavar="VOCABULARY")
    parser.add_argument("file", metavar="FILE")
    parser.add_argument("--documents", type=positive, default=1000)
    parser.add_argument("--thresholds", type=float, nargs="+", default=[0.8, 0.7, 0.5])
    parser.add_argument("--shares", type=float, nargs="+", default=[0.01, 0.02, 0.05])
    try:
        options = parser.parse_args(arguments)
        words = articles(options.file, options.documents)
        encode = tokenizer.given(options.vocabulary, True).encode
    except (BadInput, OSError) as error:
        print(f"near.py: {error}", file=sys.stderr)
        return 2
    ids = encode([" ".join(one) for one in words])
    sets = [shingles(one) for one in ids]
    found = {}
    for number, share in enumerate(options.shares):
        copies = encode([" ".join(one) for one in changed(words, share, number)])
        truth = [jaccard(a, shingles(b)) for a, b in zip(sets, copies, strict=True)]
        for threshold in options.thresholds:
            dropped = filtered([ids, copies], threshold)
            over = np.mean(np.array(truth) >= threshold)
            found[threshold, share] = (
                dropped[len(ids) :].mean(),
                over,
                int(dropped[: len(ids)].sum()),
            )
    for threshold in options.thresholds:
        print(row(threshold, [found[threshold, share] for share in options.shares], options))
    return 0


def articles(file: str, number: int) -> list[list[str]]:
    """The words of the longest lines of FILE, of so many documents, each of WORDS words and no two equal."""
    lines = dict.fromkeys(line for line in read(file, 64) if len(line.split()) >= WORDS)
    chosen = [line.split()[:WORDS] for line in lines][:number]
    if len(chosen) < number:
        raise BadInput(f"{file}: {len(chosen)} lines of {WORDS} words, {number} asked for")
    return chosen


def changed(documents: list[list[str]], share: float, seed: int) -> list[list[str]]:
    draw = random.Random(seed)
    words = [word for document in documents for word in document]
    return [
        [draw.choice(words) if draw.random() < share else word for word in document]
        for document in documents
    ]


def shingles(ids: list[int]) -> set[tuple[int, ...]]:
    return {tuple(ids[k : k + near.SHINGLE]) for k in range(len(ids) - near.SHINGLE + 1)}


def jaccard(one: set, other: set) -> float:
    return len(one & other) / len(one | other)


def filtered(parts: list[list[list[int]]], threshold: float) -> np.ndarray:
    """bool[documents]: what the filter drops of documents in several shards."""
    with tempfile.TemporaryDirectory() as scratch:
        written = shards.Shards()
        for number, documents in enumerate(parts):
            ends = np.cumsum([len(document) for document in documents])
            signatures = near.signatures(np.concatenate(documents).astype(np.uint16), ends)
            path = Path(scratch) / f"{number}.shard"
            shards.write(path, {"signatures": signatures}, {})
            written.append(path, 0, {"kept": len(documents), "counts": {}, "problems": {}})
        steps = stages.Stages(map, written.groups(), Path(scratch))
        dropped = np.zeros(written.documents, bool)
        dropped[near.similar(steps, steps.leave(~dropped), threshold, written.documents)] = True
    return dropped


def row(threshold: float, found: list[tuple[float, float, int]], options) -> str:
    shares = " / ".join(f"{100 * share:g} %" for share in options.shares)
    dropped, over = (" / ".join(f"{values[i]:.3f}" for values in found) for i in (0, 1))
    wrong = max(values[2] for values in found)
    return (
        f"| near duplicates, {shares} of the words changed, threshold {threshold:g} | - | {dropped} found; of"
        f" {options.documents:,} articles as they are {wrong} dropped | {over} are that similar |"
    )


if __name__ == "__main__":
    sys.exit(main())

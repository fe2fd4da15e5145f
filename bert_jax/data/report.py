"""The report at the end of prepare."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert_jax.data.store import ARRAYS, SPLITS


class Counted(NamedTuple):
    """What prepare counts while it works."""

    bytes: int  # of text read
    documents: int  # read
    empty: int  # documents without a sentence
    duplicates: int
    near_duplicates: int
    problems: dict[str, int]  # lines and documents dropped, by reason in words
    repeated_dropped: int  # sentences dropped by filter.repeats
    repeated_share: float  # of the training tokens, in sentences that stand more than 100 times
    most_repeated: list  # of [times, text], at most 5


def make(config, directory: Path, tokenizer, counted: Counted, sources: list[dict]) -> dict:
    unigrams = np.load(directory / "unigrams.npy").sum(axis=0)
    report = counted._asdict() | {
        "unknown_share": float(unigrams[tokenizer.unk] / unigrams.sum()),
        "pieces_per_word": float(unigrams.sum() / unigrams[tokenizer.word_starts].sum()),
    }
    for name in SPLITS:
        arrays = [np.load(directory / name / f"{array}.npy", mmap_mode="r") for array in ARRAYS]
        lengths = map(len, reversed(arrays))
        report[name] = dict(zip(("documents", "sentences", "tokens"), lengths, strict=True))
    return report


def describe(report: dict) -> list[str]:
    return [f"{key}: {value}" for key, value in report.items()]

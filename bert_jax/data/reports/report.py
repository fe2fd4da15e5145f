"""The report at the end of prepare: what the corpus is, as numbers and as text for people.

The numbers are taken in measures.py, the warnings in cautions.py, the recommendation in advice.py.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert_jax.data.reports import advice, cautions, measures
from bert_jax.data.store import SPLITS

BAR = 40  # characters of the longest bar of a histogram


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


def measure(directory: Path, tokenizer, counted: Counted, sources: list[dict]) -> dict:
    """The numbers of a store, as plain data: what report.json holds, whatever is to be done with the store.

    `directory` holds unigrams.npy (int64[sources, V]) and both splits; `sources` is a list of
    {"source": name, "format": form, "documents": {split: number}, "tokens": {split: number}}.
    """
    train = measures.Arrays.open(directory / "train")
    return {
        "bytes": counted.bytes,
        "documents_read": counted.documents,
        "empty": counted.empty,
        "duplicates": counted.duplicates,
        "near_duplicates": counted.near_duplicates,
        "problems": dict(sorted(counted.problems.items())),
        "repeated_dropped": counted.repeated_dropped,
        "repeated_share": float(counted.repeated_share),
        "most_repeated": [[int(times), text] for times, text in counted.most_repeated],
        **{name: measures.Arrays.open(directory / name).counts() for name in SPLITS},
        "sources": sources,
        **measures.of_vocabulary(measures.unigrams(directory, tokenizer), tokenizer),
        **measures.of_lengths(train),
        "spaceless_share": measures.spaceless_share(train.tokens, tokenizer),
        "first_documents": measures.first_documents(train, tokenizer),
    }


def make(config, directory: Path, tokenizer, numbers: dict) -> dict:
    """The report: the `numbers` of the store in `directory`, with those of an epoch, warnings and a recommendation.

    These follow from the config too, from keys (weights, pairs, masking) that a finished store may be used with in
    other ways than it was made with.
    """
    sources = numbers["sources"]
    weights = np.array(config.corpus.weights or [1.0] * len(sources), np.float64)
    report = numbers | {
        "sources": measures.of_sources(sources, weights),
        **measures.of_epoch(measures.unigrams(directory, tokenizer), weights, tokenizer),
    }
    report["warnings"] = cautions.warnings(config, report)
    report["recommendation"] = advice.recommend(config, report)
    return report


# --- Text -----------------------------------------------------------------------------------------


def describe(report: dict, store: str = "STORE", vocabulary: str = "VOCABULARY") -> list[str]:
    """The report as lines to read; `store` and `vocabulary` are what the command to paste names."""
    return [
        *describe_counts(report),
        *describe_pieces(report),
        *bars("tokens a document", report["document_lengths"]),
        *bars("tokens a sentence", report["sentence_lengths"]),
        "",
        "the first documents, as the model will see them:",
        *(line for document in report["first_documents"] for line in describe_document(document)),
        "",
        *advice.describe(report["recommendation"], store, vocabulary),
        *(f"warning: {each['what']}; {each['remedy']}" for each in report["warnings"]),
    ]


def describe_counts(report: dict) -> Iterator[str]:
    for name in SPLITS:
        counts = ", ".join(f"{number:,} {what}" for what, number in report[name].items())
        yield f"{name}: {counts}"
    if len(report["sources"]) > 1:
        for each in report["sources"]:
            yield (
                f"  {each['source']}: {each['tokens']['train']:,} training tokens, read {each['weight']:g} times an"
                f" epoch: {each['share']:.1%} of its tokens"
            )
    yield (
        f"left out of {report['documents_read']:,} documents, {report['bytes'] / 1e6:,.1f} MB:"
        f" {report['duplicates']:,} duplicate, {report['near_duplicates']:,} nearly, {report['empty']:,} empty"
    )
    for reason, number in report["problems"].items():
        yield f"problems: {number:,} {reason}"
    if report["repeated_dropped"]:
        yield f"left out: {report['repeated_dropped']:,} repeated sentences"
    for times, text in report["most_repeated"]:
        yield f"  {times:,} times: {measures.excerpt(text)}"


def describe_pieces(report: dict) -> Iterator[str]:
    yield (
        f"{report['pieces_per_word']:.2f} pieces a word, {report['unknown_share']:.2%} unknown,"
        f" {report['unused_share']:.1%} of the vocabulary unused, unigram entropy"
        f" {report['unigram_entropy']:.2f} nats"
    )
    commonest = (f"{piece} {share:.1%}" for piece, share in report["commonest_pieces"])
    longest = (f"{piece} ({number:,})" for piece, number in report["longest_pieces"])
    yield f"commonest pieces: {'  '.join(commonest)}"
    yield f"longest pieces: {'  '.join(longest)}"


def bars(title: str, histogram: list[list[int]]) -> Iterator[str]:
    yield from ("", f"{title}:")
    most = max(number for _, number in histogram)
    for low, number in histogram:
        span = f"{low:,} to {2 * low - 1:,}" if low > 1 else "1"
        yield f"{span:>24} {number:>14,} {'#' * -(-BAR * number // most)}".rstrip()


def describe_document(document: dict) -> Iterator[str]:
    yield f"  {document['sentences']:,} sentences, {document['tokens']:,} tokens"
    yield from (f"    {line}" for line in document["shown"])

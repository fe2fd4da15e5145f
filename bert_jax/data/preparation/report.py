"""The report at the end of `prepare`: statistics of the corpus, and warnings.

Arrays are memory-mapped. Memory holds 24 bytes per document; few of the tokens are read.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from bert_jax.checks import is_heldout_by_hash
from bert_jax.data import mixture
from bert_jax.data import store as stores
from bert_jax.data.preparation import lost_text
from bert_jax.data.sources import files, text
from bert_jax.data.sources.problems import BYTES, numbers_of
from bert_jax.tokenizers import wordpiece

COUNTS = ("bytes", "documents_read", "empty", "copies")
# The first documents are shown up to these numbers, of sentences in a document and of pieces in a sentence.
SHOWN_DOCUMENTS = 3
SHOWN_SENTENCES = 3
SHOWN_PIECES = 30
# A warning is reported beyond these limits.
SHORT_DOCUMENTS = 0.2  # share of documents with a single sentence
WRAPPED = 0.1  # share of the sentences
MAX_DOCUMENT_SHARE = 0.1  # share of the training tokens
LOST = 0.01  # share of the bytes, of the characters, or of the vocabulary; filters apart
FEW_TOKENS = 1_000_000
FEW_HELDOUT = 50  # documents
UNUSED = 0.5  # share of the vocabulary
# Advice about dropped lines, records or documents, by words in the reason. Reasons of filters have none.
REMEDIES = {
    "records without": "set config.corpus.field to the key of the text",
    "UTF-8": "grep -naxv '.*' finds them in files of config.corpus.source, iconv converts a file",
    "NUL": "check that all files of config.corpus.source are text in UTF-8",
    "MB": "check that all files of config.corpus.source are text with line breaks",
    "JSON": "check config.corpus.format",
    "parted": "separate documents by blank lines, or set another config.corpus.format",
}


# --- Numbers --------------------------------------------------------------------------------------


def build(config, path: Path, tokenizer, counts: Counter, problems: Counter, sources: list) -> dict:
    """Returns the report of a store as plain data, the content of report.json.

    path: of the store, with unigrams.npy (int64[sources, V]) and both splits.
    counts: those of COUNTS, and of lost_text.count_lost.
    problems: of the text, by reason; see problems.py.
    sources: as in the manifest.
    """
    train = stores.open_split(path / "train", sources)
    heldout = stores.open_split(path / "heldout", sources)
    unigrams = np.load(path / "unigrams.npy").sum(axis=0)
    document_ends = train.sentence_ends[train.document_ends - 1]  # in tokens
    report = {
        **{key: counts[key] for key in COUNTS},
        "bytes": counts["bytes"]
        + problems[BYTES + files.TOO_LONG]
        + problems[BYTES + files.REFUSED],
        "problems": dict(sorted(problems.items())),
        "train": stores.count_split(train),
        "heldout": stores.count_split(heldout),
        "sources": sources,
        "mixture": mixture.shares(config, sources),
        **describe_vocabulary(tokenizer, unigrams),
        "pieces_per_word": counts["tokens_read"] / max(counts["words_read"], 1),
        "unknown_share": counts["unknown_characters"] / max(counts["characters"], 1),
        "stripped_share": counts["stripped_marks"] / max(counts["characters"], 1),
        "altered_share": share_altered(tokenizer),
        "longest_document_share": int(np.diff(document_ends, prepend=0).max()) / len(train.tokens),
        "single_sentence_share": float(np.mean(np.diff(train.document_ends, prepend=0) == 1)),
        "wrapped_share": counts["wrapped"] / max(counts["sampled"], 1),
        "mean_sentence": len(train.tokens) / len(train.sentence_ends),
        "first_documents": list(first_documents(train, tokenizer)),
    }
    if config.corpus.sentences == "none":
        report["altered_text_share"] = counts["altered_characters"] / counts["exact_characters"]
    report["warnings"] = [
        {"name": name, "what": what, "remedy": remedy}
        for name, what, remedy in find_warnings(config, report)
    ]
    return report


def describe_vocabulary(tokenizer, unigrams: np.ndarray) -> dict:
    """Returns unigram_entropy, vocabulary (its size) and unused_share.

    unigrams: int64[V], the count of each piece in the training split.
    """
    return {
        "unigram_entropy": stores.entropy(unigrams),
        "vocabulary": tokenizer.size,
        "unused_share": float((unigrams[ordinary_ids(tokenizer)] == 0).mean()),
    }


def ordinary_ids(tokenizer) -> np.ndarray:
    """Returns the ids of all pieces but the special tokens."""
    return np.setdiff1d(np.arange(tokenizer.size), list(tokenizer.special.values()))


def share_altered(tokenizer) -> float:
    """Returns the share of WordPiece's pieces that lower-casing changes, so that no text has them."""
    if tokenizer.kind != wordpiece.KIND:
        return 0.0
    pieces = [tokenizer.pieces[number] for number in ordinary_ids(tokenizer)]
    # Without the spaces that BERT's rules put around ideographs.
    texts = [tokenizer.normalize(piece).replace(" ", "") for piece in pieces]
    return float(np.mean(np.array(texts) != np.array(pieces)))


def first_documents(train: stores.Split, tokenizer, unit="sentences") -> Iterator[str]:
    """Yields lines that show the beginnings of the first documents, as pieces separated by spaces. unit: what a
    document has."""
    first = 0  # sentence
    for last in train.document_ends[:SHOWN_DOCUMENTS]:
        ends = [train.sentence_ends[first - 1] if first else 0, *train.sentence_ends[first:last]]
        yield f"  {last - first:,} {unit}, {ends[-1] - ends[0]:,} tokens"
        for start, end in itertools.pairwise(ends[: SHOWN_SENTENCES + 1]):
            pieces = list(map(tokenizer.readable, train.tokens[start:end][:SHOWN_PIECES]))
            if end - start > SHOWN_PIECES:
                pieces.append("…")
            yield "    " + " ".join(pieces)
        first = last


# --- Warnings -------------------------------------------------------------------------------------


def find_warnings(config, report: dict) -> Iterator[tuple[str, str, str]]:
    """Yields (name, what is likely to harm a run, what to do about it)."""
    if config.corpus.sentences != "none":
        yield from find_bad_documents(config, report)
    yield from find_few(config, report)
    yield from find_bad_pieces(config, report)
    yield from find_dropped_text(report)


def find_bad_documents(config, report: dict) -> Iterator[tuple]:
    """Yields warnings, as find_warnings does, about documents and sentences."""
    pairs = config.task.get("pair_task", "none")
    if pairs != "none" and report["single_sentence_share"] > SHORT_DOCUMENTS:
        yield (
            "short_documents",
            f"{report['single_sentence_share']:.0%} of the documents have a single sentence, too short for"
            f" pairs ({pairs})",
            "set config.task.pair_task=none, for config.corpus.format=lines put blank lines only between"
            f" documents, or try another config.corpus.sentences than {config.corpus.sentences}",
        )
    if report["wrapped_share"] > WRAPPED and config.corpus.sentences != "wrapped":
        yield (
            "wrapped_lines",
            f"{report['wrapped_share']:.0%} of the sentences are parts of one, divided by the end of a line",
            "set config.corpus.sentences=wrapped, which joins the lines of a paragraph",
        )
    if report["longest_document_share"] > MAX_DOCUMENT_SHARE:
        yield (
            "large_document",
            f"one document has {report['longest_document_share']:.0%} of the training tokens",
            "check that config.corpus.format is that of the files",
        )


def find_few(config, report: dict) -> Iterator[tuple]:
    """Yields warnings, as find_warnings does, about the number of documents and tokens."""
    if report["train"]["tokens"] < FEW_TOKENS:
        yield (
            "few_tokens",
            f"only {report['train']['tokens']:,} training tokens, fewer than {FEW_TOKENS:,}",
            "add text to config.corpus.source",
        )
    heldout = report["heldout"]["documents"]
    if heldout < FEW_HELDOUT and is_heldout_by_hash(config):
        yield (
            "few_heldout",
            f"documents held out: only {heldout}, so held-out metrics will be noisy",
            f"set a larger config.corpus.heldout than {config.corpus.heldout:g} with a new config.store, or add"
            " documents to config.corpus.source",
        )


def find_bad_pieces(config, report: dict) -> Iterator[tuple]:
    """Yields warnings, as find_warnings does, about what vocabulary and corpus lack."""
    cased = (
        "set config.tokenizer.lowercase=False; config.tokenizer.path may name a cased vocabulary"
    )
    without_path = "config.tokenizer.path='' and " if config.tokenizer.path else ""
    if report["unknown_share"] > LOST:
        yield (
            "unknown_pieces",
            f"{report['unknown_share']:.1%} of the characters are unknown to the vocabulary, or in words"
            " over its limit",
            f"check config.tokenizer.lowercase and path; set {without_path}config.tokenizer.kind=byte_bpe, which has no"
            " unknowns",
        )
    if report["altered_share"] > LOST:
        yield (
            "cased_vocabulary",
            f"lower-casing changes {report['altered_share']:.0%} of the vocabulary, so text never has these pieces",
            cased,
        )
    if report.get("altered_text_share", 0) > LOST:
        yield (
            "altered_text",
            f"{report['altered_text_share']:.0%} of the text, in parts of {lost_text.PART} characters, is not what its"
            " pieces spell, so corpus.sentences=none does not keep it as it is",
            f"set {without_path}config.tokenizer.kind=byte_bpe or bytes, and config.tokenizer.lowercase=False",
        )
    if report["stripped_share"] > LOST:
        yield (
            "stripped_marks",
            f"{report['stripped_share']:.1%} of the characters lose a mark, such as an accent or a vowel sign",
            cased,
        )
    if config.corpus.separator and not report["problems"].get(text.SEPARATORS):
        yield (
            "no_separator",
            f"config.corpus.separator={config.corpus.separator!r}: no line is it",
            "set it to a whole line, which a carriage return alone may not end",
        )
    literals = [
        f"{number:,} {name}"
        for name, number in report["problems"].items()
        if name.startswith(lost_text.LITERAL)
    ]
    if literals:
        yield (
            "literals",
            f"the text has special tokens, which are read as text: {', '.join(literals)}",
            "set config.corpus.separator to one that is a line between documents; otherwise name a text without them in"
            " config.corpus.source",
        )
    if report["unused_share"] > UNUSED and config.tokenizer.kind != "bytes":
        yield (
            "unused_pieces",
            f"{report['unused_share']:.0%} of the vocabulary is never used",
            f"train a smaller one: set {without_path}config.tokenizer.size",
        )


def find_dropped_text(report: dict) -> Iterator[tuple]:
    """Yields warnings, as find_warnings does, about text that was dropped for other reasons than a filter."""
    for reason, number in numbers_of(report["problems"]).items():
        remedies = [REMEDIES[words] for words in REMEDIES if words in reason]
        share = share_of_text(report, reason)
        if remedies and share > LOST:
            yield (
                f"dropped_{reason.split()[0]}",
                f"{number:,} {reason}, {share:.1%} of the text",
                remedies[0],
            )


def share_of_text(report: dict, reason: str) -> float:
    """Returns the share of the bytes of text that a problem concerns."""
    return report["problems"].get(BYTES + reason, 0) / max(report["bytes"], 1)


# --- Text -----------------------------------------------------------------------------------------


def describe(report: dict, recommended: Iterable[str]) -> list[str]:
    """Returns the report as lines of text. recommended: those about runs."""
    train = report["train"]
    return [
        *describe_counts(report),
        describe_pieces(report, "characters"),
        f"means: {train['tokens'] / train['documents']:,.0f} tokens per document,"
        f" {report['mean_sentence']:.1f} per sentence, {report['pieces_per_word']:.2f} per word",
        "",
        "the first documents, as the model will see them:",
        *report["first_documents"],
        "",
        *recommended,
        *(f"warning: {warning['what']}; {warning['remedy']}" for warning in report["warnings"]),
    ]


def describe_pieces(report: dict, unit: str) -> str:
    """Returns a line about the vocabulary. unit: what `unknown_share` is a share of."""
    return (
        f"vocabulary of {report['vocabulary']:,} pieces:"
        f" {report['unknown_share']:.2%} of the {unit} unknown,"
        f" {report['unused_share']:.1%} of the vocabulary unused,"
        f" unigram entropy {report['unigram_entropy']:.2f} nats"
    )


def describe_counts(report: dict) -> Iterator[str]:
    """Yields lines about the splits, the sources, and what was left out."""
    for name in stores.SPLITS:
        counts = [f"{number:,} {what}" for what, number in report[name].items()]
        yield f"{name}: {', '.join(counts)}"
    if len(report["sources"]) > 1:
        for source in report["sources"]:
            share = source["tokens"]["train"] / report["train"]["tokens"]
            name = source.get("name", source["source"])
            line = f"  {name}: {share:.1%} of the training tokens"
            if shares := report.get("mixture"):
                line += f", {shares.get(name, 0):.1%} of those in the mixture"
            yield line
    read = f"read {report['documents_read']:,} documents, {report['bytes'] / 1e6:,.1f} MB"
    yield f"{read}; left out {report['copies']:,} copies, {report['empty']:,} empty"
    for reason, number in numbers_of(report["problems"]).items():
        yield f"problems: {number:,} {reason}, {share_of_text(report, reason):.1%} of the text"

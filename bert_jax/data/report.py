"""The report at the end of prepare, a page: what the corpus is, what may hurt a run, and a run to begin with.

Arrays are mapped and read in parts; memory holds 24 bytes a document. Of the tokens only a few are read.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bert_jax.data import recommendation
from bert_jax.data import store as stores

PART = 1 << 20  # lengths at a time
BAR = 40  # characters of the longest bar of a histogram
SHOWN_DOCUMENTS, SHOWN_SENTENCES, SHOWN_PIECES = 3, 3, 30
# A trap is told of beyond these.
SHORT_DOCUMENTS = 0.2  # share of documents with a single sentence
LARGEST_DOCUMENT = 0.1  # share of the training tokens
UNKNOWN = 0.01  # share of the training tokens
COPIES = 0.2  # share of the documents read
DROPPED = 0.01  # share of lines, or of documents, that nobody asked to leave out
LONG_SENTENCES = 100  # tokens, mean
FEW_TOKENS = 1_000_000
FEW_HELDOUT = 50  # documents
UNUSED = 0.5  # share of a given vocabulary
# A word of a reason for which lines, records or documents are dropped, though no filter asked for it -> what to do.
REMEDIES = {
    "UTF-8": "convert the files to UTF-8, or name others in config.corpus.source",
    "NUL": "are all files of config.corpus.source text?",
    "MB": "are all files of config.corpus.source text, with line breaks?",
    "JSON": "is config.corpus.format right?",
    "without": "is config.corpus.field the key of the text?",
    "parted": "are documents parted by blank lines? see config.corpus.format",
}


# --- Numbers --------------------------------------------------------------------------------------


def make(
    config, directory: Path, tokenizer, counts: Counter, problems: Counter, sources: list[dict]
) -> dict:
    """The report of a store, as plain data: what report.json holds.

    `directory` holds unigrams.npy (int64[sources, V]) and both splits; counts: bytes, documents, empty, copies;
    problems: lines, records and documents dropped, by reason in words; `sources` is as in the manifest.
    """
    train, heldout = (stores.open_split(directory / name, sources) for name in stores.SPLITS)
    unigrams = np.load(directory / "unigrams.npy").sum(axis=0)
    ordinary = np.setdiff1d(np.arange(len(unigrams)), list(tokenizer.special.values()))
    shares = unigrams / unigrams.sum()
    document_ends = train.sentence_ends[train.document_ends - 1]  # in tokens
    report = {
        "bytes": counts["bytes"],
        "documents_read": counts["documents"],
        "empty": counts["empty"],
        "copies": counts["copies"],
        "problems": dict(sorted(problems.items())),
        "train": count(train),
        "heldout": count(heldout),
        "sources": sources,
        "unigram_entropy": stores.entropy(unigrams),
        "pieces_per_word": float(1 / max(shares[tokenizer.word_starts].sum(), 1e-9)),
        "unknown_share": float(shares[tokenizer.unk]),
        "unused_share": float((unigrams[ordinary] == 0).mean()),
        "document_lengths": histogram(document_ends),
        "sentence_lengths": histogram(train.sentence_ends),
        "longest_document_share": int(np.diff(document_ends, prepend=0).max()) / len(train.tokens),
        "single_sentence_share": float(np.mean(np.diff(train.document_ends, prepend=0) == 1)),
        "mean_sentence": len(train.tokens) / len(train.sentence_ends),
        "first_documents": list(first_documents(train, tokenizer)),
    }
    found = [*traps(config, report), *dropped_text(report)]
    names = "name", "what", "remedy"
    report["warnings"] = [dict(zip(names, trap, strict=True)) for trap in found]
    short = "short_documents" in {name for name, *_ in found}
    report["recommendation"] = recommendation.recommend(config, report["train"]["tokens"], short)
    return report


def count(split: stores.Split) -> dict[str, int]:
    ends = split.document_ends, split.sentence_ends, split.tokens
    return dict(zip(("documents", "sentences", "tokens"), map(len, ends), strict=True))


def histogram(ends: np.ndarray) -> list[list[int]]:
    """[2**k, how many lengths are in [2**k, 2**(k + 1))] from the first k that has any to the last one."""
    counts, before = np.zeros(64, np.int64), 0
    for first in range(0, len(ends), PART):
        part = ends[first : first + PART]
        counts += np.bincount(np.frexp(np.diff(part, prepend=before))[1] - 1, minlength=64)
        before = part[-1]
    used = np.flatnonzero(counts)
    return [[1 << k, int(counts[k])] for k in range(used[0], used[-1] + 1)]


def first_documents(train: stores.Split, tokenizer) -> Iterator[str]:
    """Lines: the first documents as they will be seen, cut short, pieces parted by spaces."""
    sentences = np.concatenate([[0], train.document_ends[:SHOWN_DOCUMENTS]])
    ends = np.concatenate([[0], train.sentence_ends[: sentences[-1]]])
    for first, last in zip(sentences, sentences[1:], strict=False):
        yield f"  {last - first:,} sentences, {ends[last] - ends[first]:,} tokens"
        for number in range(first, min(last, first + SHOWN_SENTENCES)):
            ids = train.tokens[ends[number] : ends[number + 1]]
            more = " …" if len(ids) > SHOWN_PIECES else ""
            yield "    " + " ".join(map(tokenizer.readable, ids[:SHOWN_PIECES])) + more


# --- Traps ----------------------------------------------------------------------------------------


def traps(config, report: dict) -> Iterator[tuple[str, str, str]]:
    """(name, what is likely to hurt a run, the key that mends it)"""
    share, pairs = report["single_sentence_share"], config.objective.pair_task
    if share > SHORT_DOCUMENTS and pairs != "none":
        what = f"{share:.0%} of the documents have a single sentence, too short for pairs ({pairs})"
        other = "or part documents by blank lines alone, or try config.corpus.sentences=rules"
        yield "short_documents", what, f"set config.objective.pair_task=none, {other}"
    if (share := report["longest_document_share"]) > LARGEST_DOCUMENT:
        what = f"one document has {share:.0%} of the training tokens"
        yield "large_document", what, "are documents parted as config.corpus.format says?"
    if (mean := report["mean_sentence"]) > LONG_SENTENCES:
        remedy = f"try another config.corpus.sentences than {config.corpus.sentences}"
        yield "long_sentences", f"sentences have {mean:.0f} tokens in the mean", remedy
    if (share := report["copies"] / max(report["documents_read"], 1)) > COPIES:
        what = f"{share:.0%} of the documents read are copies, and left out"
        yield "copies", what, "does config.corpus.source name a text twice?"
    if (share := report["unknown_share"]) > UNKNOWN:
        what = f"{share:.1%} of the training tokens are unknown to the vocabulary"
        yield "unknown_pieces", what, "config.tokenizer.kind=byte_bpe knows every character"
    if (share := report["unused_share"]) > UNUSED:
        remedy = "train a smaller one: config.tokenizer.path='' and config.tokenizer.size"
        yield "unused_pieces", f"{share:.0%} of the vocabulary is never used", remedy
    if (tokens := report["train"]["tokens"]) < FEW_TOKENS:
        what = f"{tokens:,} training tokens, under {FEW_TOKENS:,}"
        yield "few_tokens", what, "add text to config.corpus.source"
    if (documents := report["heldout"]["documents"]) < FEW_HELDOUT:
        what = f"{documents} documents are held out, so held-out numbers will be noisy"
        yield "few_heldout", what, f"raise config.corpus.heldout={config.corpus.heldout:g}"


def dropped_text(report: dict) -> Iterator[tuple[str, str, str]]:
    """The same for what was dropped and no filter asked for. Lines are compared with the sentences that were kept:
    lines are not counted."""
    kept = {name: report["train"][name] + report["heldout"][name] for name in report["train"]}
    for reason, number in report["problems"].items():
        what, *words = reason.split()
        remedy = next((REMEDIES[word] for word in REMEDIES if word in words), None)
        share = number / (number + kept["sentences" if what == "lines" else "documents"])
        if remedy and share > DROPPED:
            yield f"dropped_{what}", f"{number:,} {reason}, {share:.1%}", remedy


# --- Text -----------------------------------------------------------------------------------------


def describe(report: dict, store: str = "STORE", vocabulary: str = "") -> list[str]:
    """The report as lines to read; `store` and a given `vocabulary` are what the command to paste names."""
    return [
        *describe_counts(report),
        f"{report['pieces_per_word']:.2f} pieces a word, {report['unknown_share']:.2%} unknown,"
        f" {report['unused_share']:.1%} of the vocabulary unused, unigram entropy"
        f" {report['unigram_entropy']:.2f} nats",
        *bars("tokens a document", report["document_lengths"]),
        *bars("tokens a sentence", report["sentence_lengths"]),
        "",
        "the first documents, as the model will see them:",
        *report["first_documents"],
        "",
        *recommendation.describe(report["recommendation"], store, vocabulary),
        *(f"warning: {each['what']}; {each['remedy']}" for each in report["warnings"]),
    ]


def describe_counts(report: dict) -> Iterator[str]:
    for name in stores.SPLITS:
        yield f"{name}: " + ", ".join(f"{number:,} {what}" for what, number in report[name].items())
    if len(report["sources"]) > 1:
        for each in report["sources"]:
            share = each["tokens"]["train"] / report["train"]["tokens"]
            yield f"  {each['source']}: {share:.1%} of the training tokens"
    yield (
        f"left out of {report['documents_read']:,} documents, {report['bytes'] / 1e6:,.1f} MB:"
        f" {report['copies']:,} copies, {report['empty']:,} empty"
    )
    for reason, number in report["problems"].items():
        yield f"problems: {number:,} {reason}"


def bars(title: str, counts: list[list[int]]) -> Iterator[str]:
    yield from ("", f"{title}:")
    most = max(number for _, number in counts)
    for low, number in counts:
        span = f"{low:,} to {2 * low - 1:,}" if low > 1 else "1"
        yield f"{span:>24} {number:>14,} {'#' * -(-BAR * number // most)}".rstrip()

"""The report at the end of prepare, a page: what the corpus is, what may hurt a run, and a run to begin with.

Arrays are mapped and read in parts; memory holds 8 bytes a document. Of the tokens only a few are read.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from bert_jax.data import recommendation
from bert_jax.data import store as stores

PART = 1 << 20  # lengths at a time
BAR = 40  # characters of the longest bar of a histogram
SHOWN = 10  # commonest pieces
SHOWN_DOCUMENTS, SHOWN_SENTENCES, SHOWN_PIECES = 3, 3, 30
SAMPLE = 8192  # tokens in which scripts are looked for
# Thai, Lao, Tibetan, Myanmar, Khmer, Japanese, Chinese: a "word" between spaces is a phrase there.
SPACELESS = re.compile(
    "[\u0e00-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
# A trap is told of beyond these.
SHORT_DOCUMENTS = 0.2  # share of documents with a single sentence
LARGEST_DOCUMENT = 0.1  # share of the training tokens
UNKNOWN = 0.01  # share of the training tokens
COPIES = 0.2  # share of the documents read
DROPPED = 0.01  # share of lines, or of documents, that nobody asked to leave out
FILTERED = 0.5  # share of lines, or of documents, that the filters leave out
LONG_SENTENCES = 100  # tokens, mean
FEW_TOKENS = 1_000_000
FEW_HELDOUT = 50  # documents
UNUSED = 0.5  # share of a given vocabulary
PIECES_A_WORD = 2.0
# A word of a reason for which lines or documents are dropped -> the filter that is then at work, or what to do.
FILTERS = {"characters": "{}_characters", "symbols": "line_symbols", "stop": "line_stops"}
REMEDIES = {
    "UTF-8": "convert the files to UTF-8, or name others in config.corpus.source",
    "NUL": "are all files of config.corpus.source text?",
    "MB": "are all files of config.corpus.source text, with line breaks?",
    "JSON": "is config.corpus.format right?",
    "without": "is config.corpus.field the key of the text?",
}
REMEDY = "look at the files of config.corpus.source, and whether config.corpus.format is right"


# --- Numbers --------------------------------------------------------------------------------------


def measure(
    directory: Path, tokenizer, counts: Counter, problems: Counter, sources: list[dict]
) -> dict:
    """The numbers of a store, as plain data: what report.json holds, whatever is to be done with the store.

    `directory` holds unigrams.npy (int64[sources, V]) and both splits; counts: bytes, documents, empty, copies;
    problems: lines and
    documents dropped, by reason in words; `sources` is as in the manifest.
    """
    train, heldout = (stores.open_split(directory / name, sources) for name in stores.SPLITS)
    pieces = np.load(directory / "unigrams.npy").sum(axis=0)
    ordinary = np.ones(len(pieces), bool)
    ordinary[list(tokenizer.special.values())] = False
    text = tokenizer.decode(train.tokens[:SAMPLE].tolist())
    documents = list(lengths(train.document_ends, train.sentence_ends))
    single = sum(int((part == 1).sum()) for part in lengths(train.document_ends))
    return {
        "bytes": counts["bytes"],
        "documents_read": counts["documents"],
        "empty": counts["empty"],
        "copies": counts["copies"],
        "problems": dict(sorted(problems.items())),
        "train": count(train),
        "heldout": count(heldout),
        "sources": sources,
        "unused_share": float((pieces[ordinary] == 0).mean()),
        "document_lengths": histogram(documents),
        "sentence_lengths": histogram(lengths(train.sentence_ends)),
        "longest_document_share": max(int(part.max()) for part in documents) / len(train.tokens),
        "single_sentence_share": single / len(train.document_ends),
        "mean_sentence": len(train.tokens) / len(train.sentence_ends),
        "spaceless_share": len(SPACELESS.findall(text)) / max(sum(map(str.isalpha, text)), 1),
        "first_documents": list(first_documents(train, tokenizer)),
    }


def count(split: stores.Split) -> dict[str, int]:
    ends = split.document_ends, split.sentence_ends, split.tokens
    return dict(zip(("documents", "sentences", "tokens"), map(len, ends), strict=True))


def lengths(ends: np.ndarray, of: np.ndarray | None = None) -> Iterator[np.ndarray]:
    """Lengths from ends, in parts; with `of`, where `ends` counts its items, in the unit that `of` counts."""
    before = 0
    for first in range(0, len(ends), PART):
        part = np.asarray(ends[first : first + PART])
        part = part if of is None else of[part - 1]
        yield np.diff(part, prepend=before)
        before = part[-1]


def histogram(parts: Iterable[np.ndarray]) -> list[list[int]]:
    """[2**k, how many lengths are in [2**k, 2**(k + 1))] from the first k that has any to the last one."""
    counts = sum(np.bincount(np.frexp(part)[1] - 1, minlength=64) for part in parts)
    used = np.flatnonzero(counts)
    return [[1 << k, int(counts[k])] for k in range(used[0], used[-1] + 1)]


def first_documents(train: stores.Split, tokenizer) -> Iterator[dict]:
    """The first documents as they will be seen, cut short: pieces parted by spaces."""
    sentences = np.concatenate([[0], train.document_ends[:SHOWN_DOCUMENTS]])
    for first, last in zip(sentences, sentences[1:], strict=False):
        tokens = np.concatenate(
            [[train.sentence_ends[first - 1] if first else 0], train.sentence_ends[first:last]]
        )
        lines = []
        for start, end in zip(tokens[:SHOWN_SENTENCES], tokens[1:], strict=False):
            ids = train.tokens[start : min(end, start + SHOWN_PIECES)]
            more = " …" if end - start > SHOWN_PIECES else ""
            lines.append(" ".join(tokenizer.readable(piece) for piece in ids) + more)
        yield {
            "sentences": int(last - first),
            "tokens": int(tokens[-1] - tokens[0]),
            "shown": lines,
        }


def make(config, directory: Path, tokenizer, numbers: dict) -> dict:
    """The report: the `numbers` of the store in `directory`, with those of an epoch, traps and a recommendation.

    These follow from the config too, from keys (weights, pairs, masking) that a finished store may be used with in
    other ways than it was made with.
    """
    sources = numbers["sources"]
    weights = np.array(config.corpus.weights or [1.0] * len(sources), np.float64)
    tokens = weights * [source["tokens"]["train"] for source in sources]
    unigrams = stores.open_array(directory / "unigrams.npy")
    shares = weights @ unigrams / (weights @ unigrams).sum()
    commonest = np.argsort(-shares, kind="stable")[:SHOWN]
    report = numbers | {
        "sources": [
            source | {"weight": float(weight), "share": float(part / tokens.sum())}
            for source, weight, part in zip(sources, weights, tokens, strict=True)
        ],
        # Of the text as it is: held-out text, which has no weights, is compared with it.
        "unigram_entropy": stores.entropy(unigrams.sum(axis=0)),
        "pieces_per_word": float(1 / max(shares[tokenizer.word_starts].sum(), 1e-9)),
        "unknown_share": float(shares[tokenizer.unk]),
        "commonest_pieces": [
            [tokenizer.readable(piece), float(shares[piece])] for piece in commonest
        ],
    }
    names = "name", "number", "what", "remedy"
    report["warnings"] = [dict(zip(names, trap, strict=True)) for trap in traps(config, report)]
    report["recommendation"] = recommendation.recommend(config, report)
    return report


# --- Traps ----------------------------------------------------------------------------------------


def traps(config, report: dict) -> Iterator[tuple]:
    """(name, number, what is likely to hurt a run, the key that mends it)"""
    yield from traps_of_documents(config, report)
    yield from traps_of_dropped_text(config, report)
    yield from traps_of_vocabulary(config, report)
    tokens, documents = report["train"]["tokens"], report["heldout"]["documents"]
    if tokens < FEW_TOKENS:
        what = f"{tokens:,} training tokens, under {FEW_TOKENS:,}"
        yield "few_tokens", tokens, what, "add text to config.corpus.source"
    if documents < FEW_HELDOUT:
        what = f"{documents} documents are held out, so held-out numbers will be noisy"
        remedy = f"set a larger config.corpus.heldout than {config.corpus.heldout:g}"
        yield "few_heldout", documents, what, remedy


def traps_of_documents(config, report: dict) -> Iterator[tuple]:
    for source in report["sources"]:
        if not source["documents"]["train"]:
            what = f"{source['source']} has given no document to train on"
            remedy = "is it empty, or a copy of another part of config.corpus.source?"
            yield "empty_source", 0, what, remedy
    share, pairs = report["single_sentence_share"], config.objective.pairs
    if share > SHORT_DOCUMENTS and pairs != "none":
        what = f"{share:.0%} of the documents have a single sentence, too short for pairs ({pairs})"
        remedy = (
            "set config.objective.pairs=none, or join documents (in the format lines only a blank line ends one;"
            " config.corpus.sentences=rules finds sentences inside of lines)"
        )
        yield "short_documents", share, what, remedy
    ends = "is each really one? see config.corpus.format and config.corpus.field"
    if any(source["format"] == "lines" for source in report["sources"]):
        ends = "are documents parted by blank lines? see config.corpus.format"
    share = report["longest_document_share"]
    if share > LARGEST_DOCUMENT:
        yield "large_document", share, f"one document has {share:.0%} of the training tokens", ends
    parted = report["problems"].get("documents parted", 0)
    if parted:
        what = f"{parted:,} times a document was so long that it was parted"
        yield "parted_documents", parted, what, ends
    mean = report["mean_sentence"]
    if mean > LONG_SENTENCES:
        other = "rules" if config.corpus.sentences != "rules" else "lines"
        what = f"sentences have {mean:.0f} tokens in the mean"
        yield "long_sentences", mean, what, f"try config.corpus.sentences={other}"
    share = report["copies"] / max(report["documents_read"], 1)
    if share > COPIES:
        what = f"{share:.0%} of the documents read are copies, and left out"
        remedy = (
            "does config.corpus.source name a text twice? config.filter.duplicates=False keeps them"
        )
        yield "copies", share, what, remedy


def traps_of_dropped_text(config, report: dict) -> Iterator[tuple]:
    """Lines are compared with the sentences that were kept, as lines themselves are not counted; lines of JSON are
    documents."""
    kept = {
        unit: report["train"][name] + report["heldout"][name]
        for unit, name in (("lines", "sentences"), ("documents", "documents"))
    }
    for reason, number in report["problems"].items():
        what, *words = reason.split()
        if what not in kept or reason == "documents parted":
            continue
        key = next((key for word, key in FILTERS.items() if word in words), "")
        key = key.format(what.removesuffix("s"))
        unit = "documents" if {"JSON", "without"} & set(words) else what
        share = number / (number + kept[unit])
        if share > (FILTERED if key else DROPPED):
            remedy = next((text for word, text in REMEDIES.items() if word in words), REMEDY)
            if key:
                remedy = f"if that is too much, change config.filter.{key}={config.filter[key]!r}"
            text = f"{share:.1%} of the {what} were left out: {number:,} {reason}"
            yield f"dropped_{what}", share, text, remedy


def traps_of_vocabulary(config, report: dict) -> Iterator[tuple]:
    given = bool(config.tokenizer.path)
    train = "train a vocabulary on this text: config.tokenizer.path='' and config.tokenizer.size"
    larger = f"set a larger config.tokenizer.size than {config.tokenizer.size}"
    share = report["unknown_share"]
    if share > UNKNOWN:
        what = f"{share:.1%} of the training tokens are unknown to the vocabulary"
        remedy = (
            train if given else "set config.tokenizer.kind=byte_bpe, which knows every character"
        )
        yield "unknown_pieces", share, what, remedy
    share = report["unused_share"]
    if given and share > UNUSED:
        yield "unused_pieces", share, f"{share:.0%} of the vocabulary is never used", train
    ratio = report["pieces_per_word"]
    if ratio > PIECES_A_WORD and report["spaceless_share"] < 0.2:
        what = f"{ratio:.2f} pieces a word" + (": a vocabulary of another language?" * given)
        yield "many_pieces", ratio, what, train if given else larger


# --- Text -----------------------------------------------------------------------------------------


def describe(report: dict, store: str = "STORE", vocabulary: str = "VOCABULARY") -> list[str]:
    """The report as lines to read; `store` and `vocabulary` are what the command to paste names."""
    return [
        *describe_counts(report),
        f"{report['pieces_per_word']:.2f} pieces a word, {report['unknown_share']:.2%} unknown,"
        f" {report['unused_share']:.1%} of the vocabulary unused, unigram entropy"
        f" {report['unigram_entropy']:.2f} nats",
        "commonest pieces: "
        + "  ".join(f"{piece} {share:.1%}" for piece, share in report["commonest_pieces"]),
        *bars("tokens a document", report["document_lengths"]),
        *bars("tokens a sentence", report["sentence_lengths"]),
        "",
        "the first documents, as the model will see them:",
        *(line for document in report["first_documents"] for line in describe_document(document)),
        "",
        *recommendation.describe(report["recommendation"], store, vocabulary),
        *(f"warning: {each['what']}; {each['remedy']}" for each in report["warnings"]),
    ]


def describe_counts(report: dict) -> Iterator[str]:
    for name in stores.SPLITS:
        yield f"{name}: " + ", ".join(f"{number:,} {what}" for what, number in report[name].items())
    if len(report["sources"]) > 1:
        for each in report["sources"]:
            yield (
                f"  {each['source']}: {each['tokens']['train']:,} training tokens, read {each['weight']:g} times an"
                f" epoch: {each['share']:.1%} of its tokens"
            )
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


def describe_document(document: dict) -> Iterator[str]:
    yield f"  {document['sentences']:,} sentences, {document['tokens']:,} tokens"
    yield from (f"    {line}" for line in document["shown"])

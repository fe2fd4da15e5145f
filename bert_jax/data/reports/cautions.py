"""Warnings about a corpus: what is likely to hurt a run, each with its number and its remedy."""

from collections import Counter
from collections.abc import Iterator

from bert_jax.data.reports.measures import excerpt

# A warning is given beyond these.
SHORT_DOCUMENTS = 0.2  # share of documents with a single sentence
LARGEST_DOCUMENT = 0.1  # share of the training tokens
UNKNOWN = 0.01  # share of the training tokens
REPEATED = 0.01  # share of the training tokens in sentences that stand more than 100 times
DUPLICATES = 0.2  # share of the documents read
DROPPED = 0.01  # share of lines, or of documents, that nobody asked to leave out
FILTERED = 0.5  # share of lines, or of documents, that the filters leave out
LONG_SENTENCES = 100  # tokens, mean
FEW_TOKENS = 1_000_000
FEW_HELDOUT = 50  # documents
UNUSED = 0.5  # share of a given vocabulary
PIECES_A_WORD = 2.0
SPACELESS = 0.2  # share of letters of scripts without spaces, from which on "a word" means little

# Words of a reason for which lines or documents are dropped -> the filter that is then at work.
FILTERS = {
    "lines": {"characters": "line_characters", "symbols": "line_symbols", "stop": "line_stops"},
    "documents": {"characters": "document_characters", "repeated": "repeats"},
}
# And what to do about the others.
REMEDIES = {
    "UTF-8": "convert the files to UTF-8, or name others in config.corpus.source",
    "NUL": "are all files of config.corpus.source text?",
    "MB": "are all files of config.corpus.source text, with line breaks?",
    "JSON": "is config.corpus.format right?",
    "without": "is config.corpus.field the key of the text?",
}
RECORDS = {"JSON", "without"}  # words of reasons for which a line, if it is a document, is dropped
REMEDY = "look at the files of config.corpus.source, and whether config.corpus.format is right"
KEEP = {
    "duplicates": "config.filter.duplicates=False",
    "near_duplicates": "a higher config.filter.near_duplicates, or 0",
}


def warnings(config, report: dict) -> list[dict]:
    """[{name, number, what, remedy}]: what is likely to hurt a run, and the key that mends it."""
    given = (of_sources, of_documents, of_repetition, of_dropped, of_amount, of_vocabulary)
    return [
        {"name": name, "number": number, "what": what, "remedy": remedy}
        for group in given
        for name, number, what, remedy in group(config, report)
    ]


def of_sources(config, report: dict) -> Iterator[tuple]:
    for source in report["sources"]:
        if not source["documents"]["train"]:
            yield (
                "empty_source",
                0,
                f"{source['source']} has given no document to train on",
                "is it empty, or a copy of another part of config.corpus.source?",
            )


def of_documents(config, report: dict) -> Iterator[tuple]:
    short, pairs = report["single_sentence_share"], config.objective.pairs
    if short > SHORT_DOCUMENTS and pairs != "none":
        yield (
            "short_documents",
            short,
            f"{short:.0%} of the documents have a single sentence, too short for pairs ({pairs})",
            "set config.objective.pairs=none, or join documents (in the format lines only a blank line ends one;"
            " config.corpus.sentences=rules finds sentences inside of lines)",
        )
    lines = any(source["format"] == "lines" for source in report["sources"])
    ends = (
        "are documents parted by blank lines? see config.corpus.format"
        if lines
        else "is each really one? see config.corpus.format and config.corpus.field"
    )
    share = report["longest_document_share"]
    if share > LARGEST_DOCUMENT:
        yield (
            "large_document",
            share,
            f"one document has {share:.0%} of the training tokens",
            ends,
        )
    parted = report["problems"].get("documents parted", 0)
    if parted:
        yield (
            "parted_documents",
            parted,
            f"{parted:,} times a document was so long that it was parted",
            ends,
        )
    mean = report["mean_sentence"]
    if mean > LONG_SENTENCES:
        other = "rules" if config.corpus.sentences != "rules" else "lines"
        yield (
            "long_sentences",
            mean,
            f"sentences have {mean:.0f} tokens in the mean",
            f"try config.corpus.sentences={other}",
        )


def of_repetition(config, report: dict) -> Iterator[tuple]:
    share = report["repeated_share"]
    if share > REPEATED:
        most = "".join(f' (such as "{excerpt(text)}")' for _, text in report["most_repeated"][:1])
        yield (
            "repeated_sentences",
            share,
            f"{share:.1%} of the training tokens are in sentences that stand more than 100 times{most}",
            "set config.filter.repeats=100",
        )
    for name, kind in (("duplicates", "duplicate"), ("near_duplicates", "nearly duplicate")):
        share = report[name] / max(report["documents_read"], 1)
        if share > DUPLICATES:
            yield (
                name,
                share,
                f"{share:.0%} of the documents read are {kind}, and left out",
                "does config.corpus.source name a text twice? to keep them anyway, " + KEEP[name],
            )


def of_dropped(config, report: dict) -> Iterator[tuple]:
    """Lines are compared with the sentences that were kept, as lines themselves are not counted."""
    splits = report["train"], report["heldout"]
    kept = {"lines": sum(split["sentences"] for split in splits)}
    kept["documents"] = sum(split["documents"] for split in splits)
    reasons = [of_reason(reason) for reason in report["problems"] if is_drop(reason)]
    dropped = Counter()
    for reason, *_, unit in reasons:
        dropped[unit] += report["problems"][reason]
    for reason, what, key, unit in reasons:
        number = report["problems"][reason]
        share = number / (dropped[unit] + kept[unit])
        if share > (FILTERED if key else DROPPED):
            yield (
                f"dropped_{what}",
                share,
                f"{share:.1%} of the {what} were left out: {number:,} {reason}",
                filter_remedy(config, key) if key else remedy(reason.split()),
            )


def is_drop(reason: str) -> bool:
    return reason.split()[0] in FILTERS and reason != "documents parted"


def of_reason(reason: str) -> tuple[str, str, str, str]:
    """(reason, what it drops in words, the filter that drops it or '', what these are: lines or documents)."""
    what, *words = reason.split()
    key = next((key for word, key in FILTERS[what].items() if word in words), "")
    return reason, what, key, "documents" if RECORDS & set(words) and not key else what


def filter_remedy(config, key: str) -> str:
    return f"if that is too much, change config.filter.{key}={config.filter[key]!r}"


def remedy(words: list[str]) -> str:
    return next((text for word, text in REMEDIES.items() if word in words), REMEDY)


def of_amount(config, report: dict) -> Iterator[tuple]:
    tokens, documents = report["train"]["tokens"], report["heldout"]["documents"]
    if tokens < FEW_TOKENS:
        yield (
            "few_tokens",
            tokens,
            f"{tokens:,} training tokens, under {FEW_TOKENS:,}",
            "add text to config.corpus.source",
        )
    if documents < FEW_HELDOUT:
        yield (
            "few_heldout",
            documents,
            f"{documents} documents are held out, so held-out numbers will be noisy",
            f"set a larger config.corpus.heldout than {config.corpus.heldout:g}",
        )


def of_vocabulary(config, report: dict) -> Iterator[tuple]:
    given = bool(config.tokenizer.path)
    share = report["unknown_share"]
    train = "train a vocabulary on this text: config.tokenizer.path='' and config.tokenizer.size"
    larger = f"set a larger config.tokenizer.size than {config.tokenizer.size}"
    if share > UNKNOWN:
        bytes_ = "set config.tokenizer.kind=byte_bpe, which knows every character"
        yield (
            "unknown_pieces",
            share,
            f"{share:.1%} of the training tokens are unknown to the vocabulary",
            train if given else bytes_,
        )
    share = report["unused_share"]
    if given and share > UNUSED:
        yield (
            "unused_pieces",
            share,
            f"{share:.0%} of the vocabulary is never used",
            train,
        )
    ratio = report["pieces_per_word"]
    if ratio > PIECES_A_WORD and report["spaceless_share"] < SPACELESS:
        yield (
            "many_pieces",
            ratio,
            f"{ratio:.2f} pieces a word" + (": a vocabulary of another language?" * given),
            train if given else larger,
        )

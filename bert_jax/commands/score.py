"""`score`: log-probabilities of sentences, and the accuracy on minimal pairs."""

from bert_jax import cli
from bert_jax.convert import load_model
from bert_jax.errors import BadInput
from bert_jax.inference import minimal_pairs, token_scores
from bert_jax.tasks.labelled import tables
from bert_jax.tasks.labelled.examples import OTHER_COLUMNS

BLIMP = ("field", "linguistics_term", "UID")
# Ends of names of tables, which may be compressed. Other files have a sentence a line.
FORMATS = {".json", ".jsonl", ".csv", ".tsv", ".parquet"}
OPTIONS = [
    cli.MODEL,
    cli.path(
        "--input",
        "pairs or sentences: .jsonl, another table, or a text file with a sentence a line",
        **cli.REQUIRED,
    ),
    cli.option("--good", "key of a pair's acceptable sentence", default="sentence_good"),
    cli.option("--bad", "key of its other sentence", default="sentence_bad"),
    cli.option(
        "--by",
        "keys by whose values pairs are grouped, with commas between them; default: those of BLiMP",
        metavar="KEYS",
    ),
    cli.option("--text", "key of a sentence of a table without pairs", default="text"),
    cli.option(
        "--masking",
        "what a masked model does not see of a word when it scores a piece: also the later pieces"
        " (word), or the piece alone (token)",
        choices=token_scores.MASKING,
        default=token_scores.MASKING[0],
    ),
    cli.AS_JSON,
]


def run(options, overrides) -> int:
    names, keys, rows = read(options)
    model = load_model.open_model(options.model, ["dtype=float32", *overrides])
    token_scores.is_causal(options.model, model)  # refuses a model that is no language model
    texts = []
    places = []
    for place, values in rows:
        texts += values[: len(names)]
        places += [f"{place}: {name}" if name else place for name in names]
    scores, sizes, unknown = token_scores.score_sentences(model, texts, places, options.masking)
    if len(names) == 1:
        sentences = [
            {"text": text, "log_probability": float(score), "tokens": int(size)}
            for text, score, size in zip(texts, scores, sizes, strict=True)
        ]
        result = {"sentences": sentences}
        text = "\n".join(f"{line['log_probability']:.4f}\t{line['text']}" for line in sentences)
    else:
        pairs = scores.reshape(-1, 2)
        columns = zip(*(values for _, values in rows), strict=True)
        groups = dict(zip(keys, [*columns][2:], strict=True))
        result = minimal_pairs.measure(*pairs.T, groups)
        text = minimal_pairs.describe(result)
        result["scores"] = pairs.tolist()
    if unknown:
        cli.log_progress(f"warning: {unknown:,} of {sizes.sum():,} tokens are [UNK]")
    return cli.show(options, result | {"unknown": unknown}, text)


def read(options) -> tuple[list[str], list[str], tables.Rows]:
    """Returns the columns of the sentences, two of pairs or one, those of groups, and (place, values) of each row.

    Raises BadInput for a file without rows or columns.
    """
    path = options.input
    if not FORMATS.isdisjoint(path.suffixes):
        pair = [options.good, options.bad]
        header, _ = tables.read_file(path, pair, "")
        keys = options.by.split(",") if options.by else [key for key in BLIMP if key in header]
        names = pair
        if pair[0] not in header and options.text in header:
            names = [options.text]
            keys = []
        rows = tables.read(path, names + keys)
    else:
        names = [""]
        keys = []
        lines = enumerate(tables.read_lines(path), 1)
        rows = [(f"{path}:{number}", [line]) for number, line in lines]
    if not rows:
        raise BadInput(f"--input {path}: has no sentences")
    for place, values in rows:
        if values == [None]:
            raise BadInput(f"{place}: {OTHER_COLUMNS}")
    return names, keys, rows

"""`score`: log-probabilities of sentences, and the accuracy on minimal pairs."""

from bert_jax import cli
from bert_jax.convert import open_model
from bert_jax.data.sources import tables
from bert_jax.errors import BadInput
from bert_jax.inference import minimal_pairs, token_scores
from bert_jax.runs import jax_setup
from bert_jax.tasks.supervised.predictions import as_line

BLIMP = ("field", "linguistics_term", "UID")
OPTIONS = [
    cli.MODEL,
    cli.path(
        "--input",
        "pairs or sentences: .jsonl, another table, or a text file with a sentence a line",
        **cli.REQUIRED,
    ),
    cli.option("--good", "key of a pair's acceptable sentence; default: sentence_good"),
    cli.option("--bad", "key of its other sentence; default: sentence_bad"),
    cli.option(
        "--by",
        "keys by whose values pairs are grouped, with commas between them; default: those of BLiMP",
        metavar="KEYS",
    ),
    cli.option("--text", "key of a sentence of a table without pairs; default: text"),
    cli.option(
        "--masking",
        "what a masked model does not see of a word when it scores a piece: also the later pieces"
        " (word, the default), or the piece alone (token)",
        choices=token_scores.MASKING,
    ),
    cli.AS_JSON,
]


def run(options, overrides) -> int:
    texts, locations, groups = read(options)
    model = open_model.open_model(options.model, ["dtype=float32", *overrides])
    jax_setup.start(model.config)
    open_model.check_can(options.model, model, "score")
    token_scores.check_masking(options.model, model, options.masking)
    scores, sizes, unknown = token_scores.score_sentences(
        model,
        texts,
        locations,
        options.masking,
    )
    if groups is not None:
        pairs = scores.reshape(-1, 2)
        result = minimal_pairs.measure(*pairs.T, groups)
        text = minimal_pairs.describe(result)
        result["scores"] = pairs.tolist()
    else:
        rows = [
            {"text": text, "log_probability": float(score), "tokens": int(size)}
            for text, score, size in zip(texts, scores, sizes, strict=True)
        ]
        result = {"sentences": rows}
        text = "\n".join(f"{row['log_probability']:.4f}\t{as_line(row['text'])}" for row in rows)
    if model.can("continue"):
        result["first_token"] = token_scores.first_token(model)
        cli.log(f"in front of each sentence: {result['first_token'] or 'nothing'}")
    if unknown:
        cli.log(f"warning: {unknown:,} of {sizes.sum():,} tokens are [UNK]")
    return cli.show(options, result | {"unknown": unknown}, text)


def read(options) -> tuple[list[str], list[str], dict | None]:
    """Reads the pairs of a table, or its column of sentences; or the lines of another file.

    Returns the texts, of pairs the acceptable one first; their locations, for messages; and of pairs {key: its value
    for each}.

    Raises BadInput for a file without sentences or columns, and for options of another kind of file.
    """
    path = options.input
    columns = [options.good or "sentence_good", options.bad or "sentence_bad"]
    if options.text:
        columns = [options.text]
    table = tables.read_file(path, tables.suffix_of(path), [*columns, "text"])
    header, _ = table
    if not options.text and columns[0] not in header:
        columns = [name for name in ("text", tables.LINE) if name in header] or columns
    keys = []
    if len(columns) == 1:
        for name in ("good", "bad", "by"):
            if getattr(options, name):
                raise BadInput(f"--{name}: {path} has sentences without pairs")
    elif options.by:
        keys = options.by.split(",")
    else:
        keys = [key for key in BLIMP if key in header]
    rows = tables.read(path, columns + keys, table=table)
    texts = []
    locations = []
    for location, values in rows:
        texts += values[: len(columns)]
        locations += [
            f"{location}: {column}".removesuffix(f": {tables.LINE}") for column in columns
        ]
    if len(columns) == 1:
        return texts, locations, None
    groups = {key: [values[number] for _, values in rows] for number, key in enumerate(keys, 2)}
    return texts, locations, groups

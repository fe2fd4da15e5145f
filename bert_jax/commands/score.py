"""`score`: log-probabilities of sentences, and the accuracy on minimal pairs."""

from bert_jax import cli
from bert_jax.convert import load_model
from bert_jax.errors import BadInput
from bert_jax.inference import minimal_pairs, token_scores
from bert_jax.tasks.labelled import tables
from bert_jax.tasks.labelled.examples import OTHER_COLUMNS

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
    names, keys, rows = read(options)
    model = load_model.open_model(options.model, ["dtype=float32", *overrides])
    if token_scores.is_causal(options.model, model) and options.masking:
        raise BadInput(f"--masking: {options.model} is a causal LM, which masks nothing")
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

    Raises BadInput for a file without rows or columns, and for options of another kind of file.
    """
    path = options.input
    pair = [options.good or "sentence_good", options.bad or "sentence_bad"]
    names = [options.text] if options.text else pair
    keys = []
    if tables.suffix_of(path):
        table = tables.read_file(path, names, "")
        header = table[0]
        if names[0] not in header and "text" in header:
            names = ["text"]
        if names == pair:
            keys = options.by.split(",") if options.by else [key for key in BLIMP if key in header]
        rows = tables.read(path, names + keys, table=table)
    else:
        names = [""]
        lines = enumerate(tables.read_lines(path), 1)
        rows = [(f"{path}:{number}", [line]) for number, line in lines]
    if len(names) == 1 and {options.good, options.bad, options.by, options.text} - {None, *names}:
        raise BadInput(f"--good, --bad, --by, --text: {path} has sentences without such keys")
    if not rows:
        raise BadInput(f"--input {path}: has no sentences")
    for place, values in rows:
        if values == [None]:
            raise BadInput(f"{place}: {OTHER_COLUMNS}")
    return names, keys, rows

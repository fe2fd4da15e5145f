"""`predict`: predicts pieces at [MASK], labels of texts by a fine-tuned model, translations, and how texts continue."""

from itertools import chain

from bert_jax import cli
from bert_jax.data.sources import tables
from bert_jax.errors import BadInput
from bert_jax.inference import fill_mask, predict
from bert_jax.storage import atomic
from bert_jax.tasks.supervised import predictions

# How a model that generates text is searched.
SEARCH = [
    cli.option(
        "--beam",
        "hypotheses of the beam search; default: 4, none for a causal LM",
        type=cli.positive,
        metavar="N",
        dest="beams",
    ),
    cli.option(
        "--length-penalty",
        "exponent of their lengths; default: the model's, 1 for a causal LM",
        type=float,
        metavar="ALPHA",
    ),
]
# How a causal LM continues texts.
GENERATION = [
    cli.option(
        "--tokens",
        "new tokens at most; default: 100, or what the positions leave",
        type=cli.positive,
        metavar="N",
    ),
    cli.option(
        "--temperature",
        "divides the logits before draws; 0: no draws; default: 1 with --top-k, --top-p, --samples or --seed, else 0",
        type=float,
    ),
    cli.option("--top-k", "draws from the N most probable tokens", type=int, metavar="N"),
    cli.option("--top-p", "draws from the most probable tokens that sum to this", type=float),
    cli.option("--samples", "draws of each text; default: 1", type=cli.positive, metavar="N"),
    cli.option("--seed", "of draws; default: 0", type=int),
    cli.option("--stop", "ends texts in front of it; may be repeated", action="append"),
]
OPTIONS = [
    cli.MODEL,
    cli.option("--top", "number of candidates for each mask; default: 5", type=cli.positive),
    *SEARCH,
    *GENERATION,
    cli.path(
        "--input",
        "file of examples, as the task reads it, with or without labels; for a masked or causal LM, texts: a line each,"
        " or `text` of the rows of a table (.jsonl)",
    ),
    cli.option(
        "--output",
        "file for predictions: .csv with a column for each class, .tsv as GLUE wants it, .json as SQuAD wants it,"
        " .jsonl with an object each, or a line each; of entities, a line for each word",
        type=cli.to_output,
    ),
    cli.path("--context", "file of a text that has the answer to --question"),
    cli.option("--question", "question about --context"),
    cli.option("texts", "text; with [MASK] for a masked LM", nargs="*", metavar="TEXT"),
    cli.AS_JSON,
]


def run(options, overrides) -> int:
    texts = [*options.texts]
    if options.question:
        texts.append(options.question)
    if options.context:
        # With its line ends, since `start` counts characters.
        texts.append(tables.read_text(options.context))
    if bool(texts) == bool(options.input) or bool(options.context) != bool(options.question):
        raise BadInput("predict: expected texts, --question with --context, or --input FILE")
    results, scores = predict.predict(
        options.model,
        options.input or texts,
        overrides,
        search_keys(options),
    )
    if number := sum(result.get("at_limit", False) for result in results):
        hint = "see config.task.extra_pieces"
        cli.log(f"{number} of {len(results)} translations ended at their limit; {hint}")
    lines = []
    if output := options.output:
        atomic.write(output, predictions.text(results, output.suffix.lower()))
    else:
        texts = [
            result["text"] + text for result in results for text in result.get("continuations", ())
        ]
        if len(texts) > 1:  # they may have several lines each
            texts = [f"--- {number}\n{text}" for number, text in enumerate(texts, 1)]
        lines += texts or map(describe, results)
    if scores:
        lines.append(describe_scores(scores))
    return cli.show(options, results, "\n".join(lines))


def search_keys(options) -> dict:
    """Returns {name: value} of the options that are given and that only some models have, see predict.OPTIONS."""
    names = {*chain(*predict.OPTIONS.values())}
    values = vars(options).items()
    return {name: value for name, value in values if name in names and value is not None}


def describe(result: dict) -> str:
    """Returns the text and the prediction, or a line for each mask."""
    if "masks" in result:
        return "\n".join(
            [predictions.as_line(result["text"]), *fill_mask.describe(result["masks"])]
        )
    return predictions.with_text(result)


def describe_scores(scores: dict) -> str:
    """Returns a line for each score."""
    lines = []
    for name, score in scores.items():
        number = f"{score:.6g}" if isinstance(score, float) else score
        lines.append(f"{name} {number}")
    return "\n".join(lines)

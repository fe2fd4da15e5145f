"""`attention`: a page, or the numbers, of what each token of a text reads, in all layers and heads."""

from bert_jax import cli
from bert_jax.convert import open_model
from bert_jax.errors import BadInput
from bert_jax.inference import attention, predict
from bert_jax.pages import attention as page
from bert_jax.runs import jax_setup
from bert_jax.storage import atomic

OPTIONS = [
    cli.MODEL,
    cli.option("--output", "page to write, such as attention.html", type=cli.to_output),
    cli.option(
        "texts",
        "text, with [MASK] for a masked LM; then the other text of a pair, or a translation, by default the model's",
        nargs="+",
        metavar="TEXT",
    ),
    cli.AS_JSON,
]


def run(options, overrides) -> int:
    if not (options.output or options.json):
        raise BadInput("attention: expected --output FILE or --json FILE")
    if len(options.texts) > 2:
        raise BadInput(f"attention: {len(options.texts)} texts; expected one or two")
    model = open_model.open_model(options.model, ["dtype=float32", *overrides], head="label")
    jax_setup.start(model.config)
    model = predict.with_beams(model, overrides, {})
    result = attention.compute(model, options.model, options.texts, page.MOST)
    if options.output:
        atomic.write(options.output, page.page(result))
    values = result.values() if options.json else None
    return cli.show(options, values, f"{options.output}: {len(result.tokens)} tokens")

"""`attention`: a page, and the numbers, of what each token of a text reads, in all layers and heads."""

from bert_jax import cli
from bert_jax.convert import open_model
from bert_jax.inference import attention, predict
from bert_jax.pages import attention as page
from bert_jax.runs import jax_setup
from bert_jax.storage import atomic

OPTIONS = [
    cli.MODEL,
    cli.option(
        "--output",
        "page to write, such as attention.html",
        type=cli.to_output,
        **cli.REQUIRED,
    ),
    cli.option("text", "text, with [MASK] for a masked LM", metavar="TEXT"),
    cli.option("second", "of a pair; or a translation, default: the model's", nargs="?"),
    cli.AS_JSON,
]


def run(options, overrides) -> int:
    model = open_model.open_model(options.model, ["dtype=float32", *overrides], head="label")
    jax_setup.start(model.config)
    model = predict.with_beams(model, overrides, {})
    texts = [options.text]
    if options.second is not None:
        texts.append(options.second)
    result = attention.compute(model, options.model, texts)
    atomic.write(options.output, page.page(result))
    values = result.values() if options.json else None
    return cli.show(options, values, f"{options.output}: {len(result.tokens)} tokens")

"""`evaluate`: held-out metrics of a run's newest checkpoint, of models on a text, or of translations."""

from bert_jax import cli, evaluate
from bert_jax import config as configs
from bert_jax.commands import predict
from bert_jax.errors import BadInput
from bert_jax.inference import evaluate_texts, perplexity
from bert_jax.parallel.cluster import joined

OPTIONS = [
    cli.location("--model --workdir", "runs or models", action="append", **cli.REQUIRED),
    cli.option("--config", "config of the held-out text; default: that of the run"),
    cli.path(
        "--input",
        "text to evaluate causal models on: a document, or a table (.jsonl) with one in `text` of each row;"
        " with --reference, a source a line, to translate",
    ),
    cli.option(
        "--stride",
        "tokens that a window scores; default: half a window",
        type=cli.positive,
        default=0,
    ),
    cli.path(
        "--reference",
        "file of translations, a line for each of --input; may be repeated",
        action="append",
    ),
    *predict.SEARCH,
    cli.AS_JSON,
]


def run(options, overrides) -> int:
    search = predict.search_keys(options)
    has_text = bool(options.input or options.config) and not options.reference
    is_mixed = options.config and (options.input or options.reference)
    if is_mixed or (options.reference and not options.input):
        raise BadInput("evaluate: expected --config, --input, or --input with --reference")
    if search and not options.reference:
        raise BadInput("evaluate: options of a search need --reference")
    if options.stride and not has_text:
        raise BadInput("--stride: needs a text, by --input or --config")
    if has_text:
        if options.input and overrides:
            raise BadInput(f"--config.{overrides[0]}: with --input there is no config")
        config = configs.load(options.config or "base", overrides)
        values = evaluate_texts.evaluate_models(
            options.model,
            config,
            cli.log,
            options.input,
            options.stride,
        )
        return cli.show(options, values, perplexity.describe(values))
    if len(options.model) > 1:
        raise BadInput(
            "evaluate: expected one --model with --reference, or without --input and --config"
        )
    if options.reference:
        values = evaluate_texts.evaluate_translations(
            options.model[0],
            options.input,
            options.reference,
            overrides,
            search,
        )
        return cli.show(options, values, predict.describe_scores(values))
    # The keys of `distributed` are never saved, so those of the command line are all.
    keys = [key for key in overrides if key.startswith("distributed.")]
    with joined(configs.load("base", keys).distributed) as processes:
        values = evaluate.evaluate_run(options.model[0], overrides, processes)
        if processes.is_main:
            cli.show(options, values, predict.describe_scores(values))
    return 0

"""`predict`: predicts pieces at [MASK], labels of texts by a fine-tuned model, translations, and how texts continue."""

import re
import sys
import tempfile
from pathlib import Path

import jax
import numpy as np
from tqdm import tqdm

from bert_jax import cli, evaluate
from bert_jax import config as configs
from bert_jax.convert import load_model
from bert_jax.data import store as stores
from bert_jax.data.sources import tables
from bert_jax.data.sources.text import replace_surrogates
from bert_jax.errors import BadInput
from bert_jax.inference import fill_mask, generate, token_scores
from bert_jax.inference.batches import ROWS
from bert_jax.storage import atomic
from bert_jax.tasks import base as tasks
from bert_jax.tasks.labelled import examples, predictions, texts

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
BEAMS = 4  # arXiv:1706.03762, section 6.1
# Texts that are decoded at once. On CPUs, the caches of more exceed those of the cores.
DECODED, DECODED_ON_CPU = 64, 8
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
    if re.search(r"(?i)\.(gz|bz2|xz|zst|parquet|xlsx)$", str(options.output)):
        raise BadInput(f"--output {options.output}: is not written; see predict --help")
    parts = []

    def emit(part: str):
        print(part, end="", flush=True)
        parts.append(part)

    is_streamed = sys.stdout.isatty() and options.json != "-"
    results, scores = predict(
        options.model,
        texts,
        options.input,
        overrides,
        search_keys(options),
        emit if is_streamed else None,
    )
    if number := sum(result.get("at_limit", False) for result in results):
        hint = "see config.task.extra_pieces"
        cli.log_progress(f"{number} of {len(results)} translations ended at their limit; {hint}")
    lines = []
    if output := options.output:
        atomic.write(output, predictions.text(results, output.suffix.lower()))
    elif not parts:
        texts = [
            result["text"] + text for result in results for text in result.get("continuations", ())
        ]
        if len(texts) > 1:  # they may have several lines each
            texts = [f"--- {number}\n{text}" for number, text in enumerate(texts, 1)]
        lines += texts or map(describe, results)
    for name, score in scores.items():
        number = f"{score:.4f}" if isinstance(score, float) else score
        lines.append(f"{name} {number}")
    return cli.show(options, results, "\n".join(lines))


def search_keys(options) -> dict:
    """Returns {name: value} of the options that are given and that only some models have: `top`, `output`, and fields
    of generate.Request."""
    names = ("top", "output", *generate.Request._fields)
    values = vars(options).items()
    return {name: value for name, value in values if name in names and value is not None}


def predict(
    directory: Path,
    texts: list[str],
    file: Path | None = None,
    overrides=(),
    search=(),
    emit=None,
) -> tuple[list[dict], dict]:
    """Returns the results for the texts, or for the examples of a file, and the scores of those with labels.

    A result has {text, masks: [[{piece, probability}]]}, the `top` most likely pieces for each mask, {text,
    continuations}, or what the task's `decode` returns and the `text`. search: see `search_keys`.

    emit: see `generate.generate`.
    """
    texts = replace_surrogates(texts, "predict")
    search = dict(search)
    model = open_model(directory, overrides, search)
    if token_scores.is_causal(model):
        if file:
            texts = [text for _, text in tables.read_texts(file)]
        continued = generate.generate(model, texts, generate.make_request(search), emit)
        pairs = zip(texts, continued, strict=True)
        return [{"text": text, "continuations": parts} for text, parts in pairs], {}
    task = examples.module_of(model.config)
    if not hasattr(task, "decode"):
        load_model.check_masks(directory, model)
        return predict_masks(model, texts, file, **search), {}
    if file:
        inputs = getattr(task, "load_sources", task.load)(model.config, file)
    else:
        inputs = task.parse(model.config, texts)
    for example in inputs:
        if not example.texts:
            raise BadInput(f"{example.place}: {tables.OTHER_COLUMNS}")
    if examples.has_labels(model.config):
        drop_unknown_labels(model.config, inputs)
    return predict_examples(model, inputs)


def open_model(directory: Path, overrides, search: dict) -> load_model.Model:
    """Opens a model. One that translates has these keys of its search, and BEAMS by default.

    search: see `search_keys`.

    Raises BadInput for options that the model does not have, and for a causal LM whose head is not trained.
    """
    model = load_model.open_model(directory, overrides, head="label")
    objective = model.config.objective
    if token_scores.is_causal(model):
        token_scores.check_language_model(directory, model)
        names = generate.Request._fields
    elif hasattr(examples.module_of(model.config), "decode"):
        names = ("output", *objective)
    else:
        names = ("top",)
    for name in search.keys() - names:
        raise BadInput(
            f"{generate.option(name)}: {directory}: not for objective {objective.name!r}"
        )
    if not generates(model):
        return model
    if any(override.startswith("objective.beams=") for override in overrides):
        search = {"beams": objective.beams} | search
    config = model.config.copy_and_resolve_references()
    search = {"beams": BEAMS} | search
    search.pop("output", None)
    configs.apply(config, [f"objective.{key}={value}" for key, value in search.items()])
    configs.check(config)
    phase = configs.phases(config)[-1]
    objective = tasks.make_objective(config, phase, model.vocabulary)
    return model._replace(config=config, objective=objective)


def generates(model: load_model.Model) -> bool:
    """Returns whether the outputs of a model are translations."""
    return "beams" in model.config.objective


def predict_masks(model, texts: list[str], file: Path | None, top: int = 5) -> list[dict]:
    """Returns the `top` most likely pieces for the masks of the texts, or of those of a file."""
    if file:
        pairs = tables.read_texts(file)
    else:
        pairs = [(repr(text[:40]), text) for text in texts]
    model = model._replace(params=jax.device_put(model.params))
    results = []
    for place, text in pairs:
        masks = fill_mask.candidates(model, text, top, place)
        results.append({"text": text, "masks": masks})
    return results


def drop_unknown_labels(config, inputs: list[examples.Example]) -> None:
    """Drops the labels that the model does not know from examples; prints how many."""
    task = examples.module_of(config)
    errors = []
    for number, example in enumerate(inputs):
        try:
            task.target(config, example, config.task.labels)
        except BadInput as error:
            errors.append(error)
            inputs[number] = example._replace(label=None)
    if errors:
        print(f"{errors[0]}; {len(errors)} rows are not scored", file=sys.stderr)


def predict_examples(model, inputs: list[examples.Example]) -> tuple[list[dict], dict]:
    """Returns the task's predictions for examples, and its scores of those with labels, with their number.

    Raises BadInput if there are none.
    """
    from bert_jax.data import stream

    if not inputs:
        raise BadInput("--input: has no examples")
    size = ROWS
    if generates(model):
        size = DECODED_ON_CPU if jax.default_backend() == "cpu" else DECODED
    config = model.config
    task = examples.module_of(config)
    phase = configs.phases(config)[-1]
    split = examples.split_names(config)[-1]  # its rows are evaluated, sorted by their sizes
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, "store")
        examples.build(config, model.tokenizer, {split: inputs}, path)
        store = stores.open_store(path)
        if hasattr(task, "widen"):
            phase = task.widen(config, inputs, store.splits[split], phase)
        dataset = tasks.make(config, store)
        rows = dataset.rows(phase, split, 0)
        if cut := texts.count_cut(store.splits[split], rows):
            print(
                f"config.phases.{phase.name}.length={phase.length}: {cut:,} of"
                f" {len(store.splits[split].sentence_ends):,} texts are longer, and predicted by their beginnings",
                file=sys.stderr,
            )
        batches = stream.Evaluation(dataset, phase, split, len(rows), size)
        run = jax.jit(model.objective.outputs)
        params = jax.device_put(model.params)
        outputs = []
        # On a terminal.
        for arrays in tqdm(batches, total=-(-len(rows) // size), unit="batch", disable=None):
            outputs.append(jax.device_get(run(params, arrays)))
        outputs = evaluate.join(outputs)
        # In the order of the examples. Rows that fill the last batch are after all others.
        order = np.argsort(batches.places())
        outputs = {name: array[order] for name, array in outputs.items()}
        results = task.decode(config, store, split, outputs, rows)
        labelled = [number for number, example in enumerate(inputs) if example.label is not None]
        scores = {}
        if labelled:
            is_labelled = np.isin(dataset.group(rows), labelled)
            outputs = {name: array[is_labelled] for name, array in outputs.items()}
            scores = dataset.score(split, outputs, rows[is_labelled])
            scores["examples"] = len(labelled)
    is_labelled = len(labelled) == len(inputs)
    for example, result in zip(inputs, results, strict=True):
        result["text"] = " | ".join(filter(None, example.texts))
        if isinstance(result["prediction"], list) and "probabilities" not in result:
            gold = [[word.label for word in example.label]] if is_labelled else []
            result["words"] = [*zip(example.texts, *gold, result["prediction"], strict=True)]
    return results, scores


def describe(result: dict) -> str:
    """Returns the text and the prediction, or a line for each mask."""
    if "masks" in result:
        return "\n".join(
            [predictions.as_line(result["text"]), *fill_mask.describe(result["masks"])]
        )
    return predictions.with_text(result)

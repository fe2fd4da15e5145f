"""Predictions of any model for texts or the examples of a file: fills masks, continues, translates, labels, answers.

Without TensorFlow, and without files.
"""

from itertools import chain
from pathlib import Path

import jax
import numpy as np

from bert_jax import config as configs
from bert_jax.convert import open_model
from bert_jax.data.batch import join
from bert_jax.data.sources import tables
from bert_jax.data.sources.text import replace_surrogates
from bert_jax.errors import BadInput, log
from bert_jax.inference import fill_mask, generate
from bert_jax.inference.batches import ROWS, run_texts
from bert_jax.runs import jax_setup, open_run
from bert_jax.tasks import base as tasks
from bert_jax.tasks.supervised import examples, texts
from bert_jax.tasks.text.documents import Rows

BEAMS = 4  # arXiv:1706.03762, section 6.1
# Texts that are decoded at once. On CPUs, the caches of more exceed those of the cores.
DECODED, DECODED_ON_CPU = 64, 8
# {what a model can do: the options that only such models have}, the fields of generate.Request among them
OPTIONS = {
    "continue": generate.Request._fields,
    "translate": ("beams", "length_penalty", "output"),
    "label": ("output",),
    "answer": ("output",),
    "fill": ("top",),
}


def predict(
    directory: Path | str,
    inputs: list[str] | Path,
    overrides=(),
    search=(),
) -> tuple[list[dict], dict]:
    """Returns the results for texts, or for the examples of a file, and the scores of those with labels.

    A result has {text, masks: [[{piece, probability}]]}, the `top` most likely pieces for each mask, {text,
    continuations}, or what the task's `decode` returns and the `text`. search: {name: value} of OPTIONS.
    """
    search = dict(search)
    if not isinstance(inputs, Path):
        inputs = replace_surrogates(inputs)
    model = open_with_search(directory, overrides, search)
    if not (model.can("continue") or model.can("fill")):
        return predict_examples(model, read_examples(model, inputs))
    if isinstance(inputs, Path):
        pairs = tables.read_texts(inputs)
    else:
        pairs = [(repr(text[:40]), text) for text in inputs]
    locations, inputs = zip(*pairs, strict=True)
    name = "masks"
    if model.can("continue"):
        name = "continuations"
        values = generate.generate(model, inputs, generate.make_request(search))
    else:
        values = fill_mask.candidates(model, inputs, search.get("top", 5), locations)
    return [{"text": text, name: value} for text, value in zip(inputs, values, strict=True)], {}


def open_with_search(directory: Path | str, overrides, search: dict) -> open_run.OpenModel:
    """Opens a model, and sets up JAX. One that translates has these keys of its search, and BEAMS by default.

    Raises BadInput for a model that predicts nothing, and for options that it does not have.
    """
    model = open_model.open_model(directory, overrides, head="label")
    jax_setup.start(model.config)
    open_model.check_can(directory, model, *OPTIONS)
    objective = model.config.objective
    names = {*chain(*(names for ability, names in OPTIONS.items() if model.can(ability)))}
    for name in search.keys() - names:
        raise BadInput(
            f"{generate.option(name)}: {directory}: not for objective {objective.name!r}"
        )
    return with_beams(model, overrides, search)


def with_beams(model: open_run.OpenModel, overrides, search: dict) -> open_run.OpenModel:
    """Returns a model that, if it translates, does so with these keys, and with BEAMS unless overrides have others."""
    if not model.can("translate"):
        return model
    if "objective.beams" not in configs.overridden(overrides):
        search = {"beams": BEAMS} | search
    return with_search(model, search)


def with_search(model: open_run.OpenModel, search: dict) -> open_run.OpenModel:
    """Returns a model that translates with these keys of its search: beams, length_penalty. Raises BadInput."""
    config = model.config.copy_and_resolve_references()
    for name in ("beams", "length_penalty"):
        if search.get(name) is not None:
            configs.apply(config, [f"objective.{name}={search[name]}"])
    configs.check(config)
    phase = configs.phases(config)[-1]
    objective = tasks.make_objective(config, phase, model.vocabulary)
    return model._replace(config=config, objective=objective)


def read_examples(model, inputs: list[str] | Path) -> list[examples.Example]:
    """Returns the examples of texts or of a file, without labels that the model does not know; prints how many."""
    config = model.config
    task = examples.of(config)
    if isinstance(inputs, Path):
        load = task.load_inputs or task.load
        chosen = load(config, inputs)
    else:
        chosen = task.parse(config, inputs)
    errors = []
    for index, example in enumerate(chosen):
        if not example.texts:
            raise BadInput(f"{example.location}: {tables.OTHER_COLUMNS}")
        try:
            if examples.has_labels(config):
                task.target(config, example, config.task.labels)
        except BadInput as error:
            errors.append(error)
            chosen[index] = example._replace(label=None)
    if errors:
        log(f"{errors[0]}; {len(errors)} rows are not scored")
    return chosen


def predict_examples(model, inputs: list[examples.Example]) -> tuple[list[dict], dict]:
    """Returns the task's predictions for examples, and its scores of those with labels, with their number.

    Raises BadInput if there are none.
    """
    if not inputs:
        raise BadInput("--input: has no examples")
    config = model.config
    task = examples.of(config)
    phase = configs.phases(config)[-1]
    split = examples.split_names(config)[-1]  # its rows are evaluated
    store = examples.in_memory(config, model.tokenizer, split, inputs)
    part = store.splits[split]
    if task.widen:
        phase = task.widen(config, inputs, part, phase)
    dataset = tasks.make(config, store)
    rows = dataset.rows(phase, split, 0)
    if cut := texts.count_cut(part, rows):
        log(
            f"config.phases.{phase.name}.length={phase.length}: {cut:,} of"
            f" {len(part.sentence_ends):,} texts are longer, and predicted by their beginnings"
        )
    outputs = compute(model, part.tokens, dataset, rows)
    results = task.decode(config, store, split, outputs, rows)
    labelled = [index for index, example in enumerate(inputs) if example.label is not None]
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


def compute(model, tokens, dataset, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Returns the outputs of the objective for rows of a data set, [R, ...] each. tokens: of their split."""
    outputs = jax.jit(model.objective.outputs)
    most = ROWS
    sources = rows
    if model.can("translate"):
        sources = rows[:, :, 0]  # without the targets
        most = DECODED_ON_CPU if jax.default_backend() == "cpu" else DECODED

    def run(params, batch, numbers):
        arrays = jax.device_get(outputs(params, batch))
        for index in range(len(numbers)):
            yield {name: array[index : index + 1] for name, array in arrays.items()}

    def read(number: int) -> list[tuple]:
        return texts.wrap(tokens, sources[number], model.frame)

    return join(run_texts(model, run, Rows(len(rows), read), dataset.sizes(rows), most))

"""Converts config.json of Hugging Face from and to the keys of config.model, objective and task."""

from pathlib import Path
from typing import NamedTuple

from bert_jax import config as configs
from bert_jax.convert import names
from bert_jax.convert.architecture import Architecture
from bert_jax.errors import BadInput, one_line

# {task.kind: what transformers calls it}
PROBLEMS = {
    "classes": "single_label_classification",
    "labels": "multi_label_classification",
    "number": "regression",
}
TASK = "bert_jax_task"  # the key of config.json with the keys of the task, which transformers does not read
PLACES = ("name", "data", "train", "dev")  # keys of a task that say nothing about a model


# --- Reading --------------------------------------------------------------------------------------


def from_huggingface(values: dict, path: Path, outside: str = "") -> tuple[dict, Architecture]:
    """Converts config.json to keys of config.model, whose ranges `config.check` checks; returns them and the
    architecture.

    outside: see names.find_model. Raises BadInput with the file, the key and its value.
    """
    name, architecture = names.find_model(values, path, outside)
    settings = architecture.plain | architecture.read_settings(values, path)
    return {"name": name} | settings, architecture


class Labeler(NamedTuple):
    """The task of a fine-tuned model."""

    objective: str = ""
    outputs: int = 1  # of the dense layer
    overrides: tuple[str, ...] = ()  # of the config: objective, task and length of a row


def labeler_from_huggingface(values: dict, path: Path, architecture: Architecture) -> Labeler:
    """Converts config.json of a model that bert_jax fine-tuned and exported.

    The names are those of names.LABELERS, so that no other module is imported. Raises BadInput if it was altered.
    """
    for objective, (end, _, task) in names.LABELERS.items():
        if values.get("architectures") == [architecture.prefix + end] and TASK in values:
            try:
                keys = {key: value for key, value in values[TASK].items() if key not in PLACES}
                length = keys.pop("length")
                labels = list(keys["labels"])
            except (AttributeError, KeyError, TypeError) as error:
                raise BadInput(f"{path}: {TASK} is altered ({one_line(error)})") from None
            outputs = {"spans": 2, "multiple_choice": 1}.get(objective) or len(labels) or 1
            overrides = (
                f"objective.name={objective}",
                f"task.name={task}",
                f"phases.main.length={length}",
                *(f"task.{key}={value}" for key, value in keys.items()),
            )
            return Labeler(objective, outputs, overrides)
    return Labeler(architecture.objective)


# --- Writing --------------------------------------------------------------------------------------


def to_huggingface(config, vocabulary, architecture: Architecture) -> dict:
    """Converts config.model and special tokens to keys of config.json, which transformers reads from 4.48 on."""
    model = configs.resolve_model(config).model
    values = {key: model[ours] for key, (ours, _) in architecture.keys.items()}
    values |= architecture.fixed | {
        "model_type": architecture.model_type,
        "vocab_size": vocabulary.size,
        "pad_token_id": vocabulary.pad,
    }
    return values | architecture.write_settings(model, vocabulary)


def labels_to_huggingface(config) -> dict:
    """Returns the keys of config.json for an objective with the dense layer `label`."""
    values = {}
    objective = config.objective.name
    if objective in ("classifier", "token_classifier"):  # other outputs have no names
        labels = config.task.get("labels") or ("LABEL_0",)  # transformers' name of a number
        values["id2label"] = dict(enumerate(labels))
        values["label2id"] = {label: number for number, label in enumerate(labels)}
    if objective == "classifier":
        values["problem_type"] = PROBLEMS[config.task.kind]
    values[TASK] = {key: value for key, value in config.task.items() if key not in PLACES}
    values[TASK]["length"] = configs.phases(config)[-1].length
    return values | names.find_architecture(config.model).write_label_settings(config)

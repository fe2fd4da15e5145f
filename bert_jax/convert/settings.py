"""Converts config.json of Hugging Face and bert_config.json of Google's BERT from and to the keys of config.model."""

from pathlib import Path
from typing import NamedTuple

from bert_jax import config as configs
from bert_jax.convert import modernbert, names
from bert_jax.convert.modernbert import POOLING
from bert_jax.errors import BadInput, one_line

EPSILON, ORIGINAL_EPSILON = "layer_norm_eps", 1e-12  # Google's BERT has it in its code
# {config.model.name: {key of config.json: (key of config.model, default)}}; the default is 0 for a required key.
KEYS = {
    "bert": {
        "num_hidden_layers": ("layers", 0),
        "hidden_size": ("width", 0),
        "num_attention_heads": ("heads", 0),
        "intermediate_size": ("feed_forward", 0),
        "max_position_embeddings": ("max_length", 0),
        "type_vocab_size": ("type_vocabulary", 2),
        "hidden_dropout_prob": ("dropout", 0.1),
        "attention_probs_dropout_prob": ("attention_dropout", 0.1),
        "initializer_range": ("initializer", 0.02),
        EPSILON: ("epsilon", ORIGINAL_EPSILON),
    },
    "modernbert": modernbert.KEYS,
}
# {name in Hugging Face: name in bert_jax}; the first is the default, and of several the one that is written.
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}
ACTIVATION = {"bert": "hidden_act", "modernbert": "hidden_activation"}
# {config.model.name: {key of config.json that changes the model: the supported value}}
FIXED = {
    "bert": {
        "position_embedding_type": "absolute",
        "is_decoder": False,
        "add_cross_attention": False,
    },
    "modernbert": modernbert.FIXED,
}
LIMIT = 1e9  # of numbers that are not sizes
# {task.kind: what transformers calls it}
PROBLEMS = {"classes": "single_label_classification", "labels": "multi_label_classification"}
PROBLEMS |= {"number": "regression"}
TASK = "bert_jax_task"  # the key of config.json with the keys of the task, which transformers does not read
PLACES = ("name", "data", "train", "dev")  # keys of a task that say nothing about a model


# --- Reading --------------------------------------------------------------------------------------


def from_huggingface(values: dict, path: Path) -> dict:
    """Converts config.json to keys of config.model, whose ranges `config.check` checks.

    Raises BadInput with the file, the key and its value.
    """
    name = values.get("model_type", "bert")
    if name not in tuple(KEYS):
        raise BadInput(f"{path}: model_type is {name!r}, expected one of {', '.join(KEYS)}")
    if name == "modernbert":
        values = modernbert.older_keys(values, path)
    for key, expected in FIXED[name].items():
        if values.get(key, expected) != expected:
            raise BadInput(f"{path}: {key} is {values[key]!r}, expected {expected!r}")
    settings = {own: read_number(values, key, path, d) for key, (own, d) in KEYS[name].items()}
    settings["activation"] = read_choice(values, ACTIVATION[name], path, ACTIVATIONS)
    if name == "modernbert":
        settings["pooling"] = read_choice(values, "classifier_pooling", path, POOLING)
    return {"name": name} | settings | (names.PLAIN if name == "bert" else {})


class Labeler(NamedTuple):
    """The task of a fine-tuned model."""

    objective: str = ""
    outputs: int = 1  # of the dense layer
    overrides: tuple[str, ...] = ()  # of the config: objective, task and length of a row


def labeler_from_huggingface(values: dict, path: Path) -> Labeler:
    """Converts config.json of a model that bert_jax fine-tuned and exported. The names are those of names.LABELERS, so
    that no other module is imported. Raises BadInput if it was altered."""
    model, classes = values.get("model_type", "bert"), values.get("architectures")
    for objective, (end, _, task) in names.LABELERS.items():
        if classes == [names.CLASSES[model] + end] and TASK in values:
            try:
                keys = {key: value for key, value in values[TASK].items() if key not in PLACES}
                length, labels = keys.pop("length"), list(keys["labels"])
            except (AttributeError, KeyError, TypeError) as error:
                raise BadInput(f"{path}: {TASK} is altered ({one_line(error)})") from None
            outputs = {"spans": 2, "multiple_choice": 1}.get(objective) or len(labels) or 1
            names_of_modules = f"objective.name={objective}", f"task.name={task}"
            others = (f"task.{key}={value}" for key, value in keys.items())
            overrides = *names_of_modules, f"phases.main.length={length}", *others
            return Labeler(objective, outputs, overrides)
    return Labeler()


def from_google(values: dict, path: Path) -> dict:
    """Converts bert_config.json to keys of config.model. Raises BadInput with the file, the key and its value."""
    values = values | {EPSILON: ORIGINAL_EPSILON}
    if values.get("hidden_act", "gelu") == "gelu":  # the tanh approximation
        values["hidden_act"] = "gelu_new"
    return from_huggingface(values, path)


def read_number(values: dict, key: str, path: Path, default: float):
    """Returns a value of the type of its default: a positive integer, which is required if the default is 0, or a float
    that is not negative."""
    value = values.get(key, default)
    if type(default) is int:
        fits, expected = type(value) is int and value > 0, "a positive integer"
    else:
        fits, expected = type(value) in (int, float) and 0 <= value < LIMIT, "a number"
    if not fits:
        raise BadInput(f"{path}: {key} is {value!r}, expected {expected}")
    return type(default)(value)


def read_choice(values: dict, key: str, path: Path, choices: dict[str, str]) -> str:
    name = values.get(key, next(iter(choices)))
    if not isinstance(name, str) or name not in choices:
        raise BadInput(f"{path}: {key} is {name!r}, expected one of {', '.join(choices)}")
    return choices[name]


# --- Writing --------------------------------------------------------------------------------------


def to_huggingface(model, vocabulary) -> dict:
    """Converts config.model and special tokens to keys of config.json, which transformers reads from 4.48 on."""
    name, activation = model.name, find(ACTIVATIONS, model.activation)
    values = {key: model[own] for key, (own, _) in KEYS[name].items()} | FIXED[name]
    values |= {"model_type": name, "vocab_size": vocabulary.size, "pad_token_id": vocabulary.pad}
    values |= {"intermediate_size": model.feed_forward or 4 * model.width}
    values[ACTIVATION[name]] = activation
    if name == "modernbert":
        values |= modernbert.newer_keys(model)
        values["classifier_activation"] = activation
        values["classifier_pooling"] = find(POOLING, model.pooling)
        for key in ("cls", "bos", "sep", "eos"):
            values[f"{key}_token_id"] = vocabulary.cls if key in ("cls", "bos") else vocabulary.sep
    return values


def find(choices: dict[str, str], value: str) -> str:
    """Returns the first name that has a value."""
    return next(name for name in choices if choices[name] == value)


def to_google(model, vocabulary) -> dict:
    """Converts config.model, of the values in names.exportable, to bert_config.json."""
    values = to_huggingface(model, vocabulary)
    for key in ("model_type", "pad_token_id", EPSILON, *FIXED["bert"]):
        del values[key]
    return values | {"hidden_act": values["hidden_act"].removesuffix("_new")}


def labels_to_huggingface(config) -> dict:
    """Returns the keys of config.json for an objective with the dense layer `label`."""
    values, labels = {}, config.task.get("labels") or ("LABEL_0",)  # transformers' name of a number
    if config.objective.name in ("classifier", "token_classifier"):  # other outputs have no names
        values["id2label"] = dict(enumerate(labels))
        values["label2id"] = {label: number for number, label in enumerate(labels)}
    if config.objective.name == "classifier":
        values["problem_type"] = PROBLEMS[config.task.kind]
    values[TASK] = {key: value for key, value in config.task.items() if key not in PLACES}
    values[TASK]["length"] = configs.phases(config)[-1].length
    if config.model.name == "modernbert":
        pool = config.objective.get("pool", "cls").replace("cls", config.model.pooling)
        values["classifier_pooling"] = find(POOLING, pool)
        values["classifier_dropout"] = config.objective.dropout
    return values

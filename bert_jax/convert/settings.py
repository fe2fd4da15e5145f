"""Converts config.json of Hugging Face and bert_config.json of Google's BERT from and to the keys of config.model."""

from pathlib import Path

import numpy as np

from bert_jax.errors import BadInput

EPSILON, ORIGINAL_EPSILON = "layer_norm_eps", 1e-12  # Google's BERT has it in its code
LEAST_EPSILON = float(np.finfo(np.float32).tiny)  # smaller values are zero in float32
ACTIVATION = "hidden_act"
# {key in both files: (key of config.model, default)}; the default is None for a required key.
KEYS = {
    "num_hidden_layers": ("layers", None),
    "hidden_size": ("width", None),
    "num_attention_heads": ("heads", None),
    "intermediate_size": ("feed_forward", None),
    "max_position_embeddings": ("max_length", None),
    "type_vocab_size": ("type_vocabulary", 2),
    "hidden_dropout_prob": ("dropout", 0.1),
    "attention_probs_dropout_prob": ("attention_dropout", 0.1),
    "initializer_range": ("initializer", 0.02),
    EPSILON: ("epsilon", ORIGINAL_EPSILON),
}
# {name in Hugging Face: name in bert_jax}; the first of several is the one that is written.
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}
# {key of config.json that changes the model: the supported value}
FIXED = {
    "model_type": "bert",
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
}
# {task.kind: what transformers calls it}
PROBLEMS = {"classes": "single_label_classification", "labels": "multi_label_classification"}
PROBLEMS |= {"number": "regression"}


# --- Reading --------------------------------------------------------------------------------------


def from_huggingface(values: dict, path: Path) -> dict:
    """Converts config.json to keys of config.model. Raises BadInput with the file, the key and its value."""
    for key, expected in FIXED.items():
        if values.get(key, expected) != expected:
            raise BadInput(f"{path}: {key} is {values[key]!r}, expected {expected!r}")
    settings = {}
    for key, (name, default) in KEYS.items():
        read = read_fraction if isinstance(default, float) else read_size
        settings[name] = read(values if default is None else {key: default} | values, key, path)
    if settings["width"] % settings["heads"]:
        sizes = f"num_attention_heads {settings['heads']}, hidden_size {settings['width']}"
        raise BadInput(f"{path}: {sizes}: the heads do not divide the size")
    name = values.get(ACTIVATION, "gelu")
    if not isinstance(name, str) or name not in ACTIVATIONS:
        expected = ", ".join(ACTIVATIONS)
        raise BadInput(f"{path}: {ACTIVATION} is {name!r}, expected one of {expected}")
    return settings | {"activation": ACTIVATIONS[name]}


def from_google(values: dict, path: Path) -> dict:
    """Converts bert_config.json to keys of config.model. Raises BadInput with the file, the key and its value."""
    values = values | {EPSILON: ORIGINAL_EPSILON}
    if values.get(ACTIVATION, "gelu") == "gelu":  # the tanh approximation
        values[ACTIVATION] = "gelu_new"
    return from_huggingface(values, path)


def read_fraction(values: dict, key: str, path: Path) -> float:
    value, least = values[key], LEAST_EPSILON if key == EPSILON else 0
    if type(value) not in (int, float) or not least <= value < 1:
        raise BadInput(f"{path}: {key} is {value!r}, expected a number in [{least}, 1)")
    return float(value)


def read_size(values: dict, key: str, path: Path) -> int:
    if type(values.get(key)) is not int or values[key] < 1:
        raise BadInput(f"{path}: {key} is {values.get(key)!r}, expected a positive integer")
    return values[key]


# --- Writing --------------------------------------------------------------------------------------


def to_huggingface(model, pieces: int) -> dict:
    """Converts config.model to keys of config.json."""
    values = {key: model[name] for key, (name, _) in KEYS.items()}
    values["intermediate_size"] = model.feed_forward or 4 * model.width
    values[ACTIVATION] = next(k for k, name in ACTIVATIONS.items() if name == model.activation)
    return values | {"vocab_size": pieces}


def to_google(model, pieces: int) -> dict:
    """Converts config.model, of the values in names.exportable, to bert_config.json."""
    values = to_huggingface(model, pieces)
    del values[EPSILON]
    return values | {ACTIVATION: values[ACTIVATION].removesuffix("_new")}


def labels_to_huggingface(config) -> dict:
    """Returns the keys of config.json for an objective with the dense layer `label`."""
    if config.objective.name not in ("classifier", "token_classifier"):
        return {}  # its outputs have no names
    names = config.task.labels or ("LABEL_0",)  # transformers' name of a number
    values = {"id2label": dict(enumerate(names)), "label2id": {n: i for i, n in enumerate(names)}}
    if config.objective.name == "classifier":
        values["problem_type"] = PROBLEMS[config.task.kind]
    return values

"""config.json of Hugging Face and bert_config.json of the original program, from and to the keys of config.model."""

from pathlib import Path

import numpy as np

from bert_jax.errors import BadInput

# In both files: their key, ours, and the value where a file does not say; None where it has to.
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
}
EPSILON = "layer_norm_eps"  # the original has 1e-12 in its code
ORIGINAL_EPSILON = 1e-12
LEAST_EPSILON = float(np.finfo(np.float32).tiny)  # less is zero

# Theirs, ours; the first of several is the one that is written.
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}
# The original's gelu is the tanh form; it has tanh and linear, too, which we have not.
ORIGINAL_ACTIVATIONS = {"gelu": "gelu_tanh", "relu": "relu"}

# What would make another model of config.json's, and the value that does not.
FIXED = {
    "model_type": "bert",
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
}


# --- From theirs ----------------------------------------------------------------------------------


def from_huggingface(values: dict, path: Path) -> dict:
    """config.json -> keys of config.model; BadInput names the file, the key and its value."""
    for key, expected in FIXED.items():
        if values.get(key, expected) != expected:
            raise BadInput(f"{path}: {key} is {values[key]!r}, expected {expected!r}")
    epsilon = share({EPSILON: ORIGINAL_EPSILON} | values, EPSILON, path, LEAST_EPSILON)
    return common(values, path) | {
        "epsilon": epsilon,
        "activation": activation(values, ACTIVATIONS, path),
    }


def from_google(values: dict, path: Path) -> dict:
    """bert_config.json -> keys of config.model; BadInput likewise."""
    return common(values, path) | {
        "epsilon": ORIGINAL_EPSILON,
        "activation": activation(values, ORIGINAL_ACTIVATIONS, path),
    }


def common(values: dict, path: Path) -> dict:
    settings = {}
    for key, (ours, default) in KEYS.items():
        read = share if isinstance(default, float) else size
        settings[ours] = read(values if default is None else {key: default} | values, key, path)
    if settings["width"] % settings["heads"]:
        sizes = f"num_attention_heads {settings['heads']}, hidden_size {settings['width']}"
        raise BadInput(f"{path}: {sizes}, which does not divide")
    return settings


def activation(values: dict, known: dict[str, str], path: Path) -> str:
    name = values.get("hidden_act", "gelu")
    if not isinstance(name, str) or name not in known:
        raise BadInput(f"{path}: hidden_act is {name!r}, expected one of {', '.join(known)}")
    return known[name]


def share(values: dict, key: str, path: Path, least: float = 0) -> float:
    value = values[key]
    if type(value) not in (int, float) or not least <= value < 1:
        raise BadInput(f"{path}: {key} is {value!r}, expected a number from {least} up to 1")
    return float(value)


def size(values: dict, key: str, path: Path) -> int:
    if type(values.get(key)) is not int or values[key] < 1:
        raise BadInput(f"{path}: {key} is {values.get(key)!r}, expected a positive whole number")
    return values[key]


# --- To theirs ------------------------------------------------------------------------------------


def to_huggingface(model, pieces: int) -> dict:
    """config.model -> what config.json says of it."""
    return to_common(model, pieces, ACTIVATIONS) | {EPSILON: model.epsilon}


def to_google(model, pieces: int) -> dict:
    """config.model -> bert_config.json, of a model that `check_google` has let pass."""
    return dict(sorted(to_common(model, pieces, ORIGINAL_ACTIVATIONS).items()))


def check_google(model) -> None:
    """Refuses what the original program has no setting for."""
    if model.activation not in ORIGINAL_ACTIVATIONS.values():
        raise BadInput(
            f"config.model.activation={model.activation}: not in the original program, whose gelu is our gelu_tanh"
        )
    if model.epsilon != ORIGINAL_EPSILON:
        raise BadInput(
            f"config.model.epsilon={model.epsilon}: in the original program it is always {ORIGINAL_EPSILON}"
        )


def to_common(model, pieces: int, activations: dict[str, str]) -> dict:
    values = {key: model[ours] for key, (ours, _) in KEYS.items()}
    values["intermediate_size"] = model.feed_forward or 4 * model.width
    name = next(theirs for theirs, ours in activations.items() if ours == model.activation)
    return values | {"hidden_act": name, "vocab_size": pieces}

"""Reads values of config.json, which may be of any type."""

from pathlib import Path

from bert_jax.errors import BadInput

# {key that all architectures have: (key of config.model, default)}
SIZES = {
    "num_hidden_layers": ("layers", 0),
    "hidden_size": ("width", 0),
    "num_attention_heads": ("heads", 0),
    "intermediate_size": ("feed_forward", 0),
    "max_position_embeddings": ("max_length", 0),
}
# {name in Hugging Face: name in bert_jax}; the first is the default, and of several the one that is written.
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}
LIMIT = 1e9  # of numbers that are not sizes


def read_keys(
    values: dict, keys: dict, fixed: dict, path: Path, activation: str, choices=ACTIVATIONS
) -> dict:
    """Returns {key of config.model: number}, and its activation.

    values: the content of config.json.
    keys: {its key: (key of config.model, default)}, see `read_number`.
    fixed: {key that changes the model: the supported value}.
    activation, choices: its key, see `read_choice`.

    Raises BadInput with the file, the key and its value.
    """
    for key, expected in fixed.items():
        if values.get(key, expected) != expected:
            raise BadInput(f"{path}: {key} is {values[key]!r}, expected {expected!r}")
    settings = {"activation": read_choice(values, activation, path, choices)}
    for key, (ours, default) in keys.items():
        settings[ours] = read_number(values, key, path, default)
    return settings


def read_number(values: dict, key: str, path: Path, default: float):
    """Returns a value of the type of its default: a positive integer, which is required if the default is 0, or a float
    that is not negative."""
    value = values.get(key, default)
    if type(default) is int:
        is_valid = type(value) is int and value > 0
        expected = "a positive integer"
    else:
        is_valid = type(value) in (int, float) and 0 <= value < LIMIT
        expected = "a number"
    if not is_valid:
        raise BadInput(f"{path}: {key} is {value!r}, expected {expected}")
    return type(default)(value)


def read_choice(values: dict, key: str, path: Path, choices: dict[str, str]) -> str:
    """Returns what a name stands for; the first of the choices is the default."""
    name = values.get(key, next(iter(choices)))
    if not isinstance(name, str) or name not in choices:
        raise BadInput(f"{path}: {key} is {name!r}, expected one of {', '.join(choices)}")
    return choices[name]


def name_of(value: str, choices=ACTIVATIONS) -> str:
    """Returns the first name that stands for a value."""
    return next(name for name in choices if choices[name] == value)

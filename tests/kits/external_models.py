"""Small models in the formats of other programs: a Hugging Face directory, a TensorFlow checkpoint of Google's BERT."""

import json
import shutil
from pathlib import Path
from string import ascii_lowercase

import numpy as np
from kits.small import SMALL
from safetensors.numpy import save_file

from bert_jax.convert import names
from bert_jax.tokenizers.special_tokens import SPECIAL

SIZES = {"name": "bert", "layers": 2, "width": 16, "feed_forward": 24, "max_length": 32}
SIZES |= {"type_vocabulary": 2}
HEADS = 2
WORDS = ("the", "bank", "river", "un", "able", "##able", "##ion", "walk", "old", ",", ".")
PIECES = [*SPECIAL.values(), *WORDS, *ascii_lowercase]
PIECES += [f"##{letter}" for letter in ascii_lowercase]
PARTS = ("network", "pooler", "mlm", "pair")

# Config keys of a run that continues an imported model.
SETTINGS = {key: value for key, value in SMALL.items() if not key.startswith(("model.", "token"))}
SETTINGS |= {"optimizer.learning_rate": 1e-2, "phases.main.steps": 8, "phases.main.batch": 8}
SETTINGS |= {"log.every": 4, "evaluate.every": 4, "evaluate.rows": 16, "checkpoint.every": 4}


def make_tensors(format: str = "huggingface", parts=PARTS, seed: int = 0) -> dict[str, np.ndarray]:
    """Returns {name in the format: float32}: scales near 1, all else small; the same parameters in either format."""
    draw = np.random.default_rng(seed)
    tensors = {}
    for item in names.parameters(SIZES):
        array = draw.normal(0, 0.1, names.shape(item, SIZES, len(PIECES))).astype(np.float32)
        array += item.path.endswith("/scale")
        if item.part in parts:
            array = array.T if format in item.transposed else array
            tensors[getattr(item, format)] = np.ascontiguousarray(array)
    return tensors


def padded(array: np.ndarray, rows: int) -> np.ndarray:
    """Returns an array with `rows` rows if it has one for each piece, otherwise unchanged."""
    if len(array) != len(PIECES):
        return array
    return np.pad(array, [(0, rows - len(array))] + [(0, 0)] * (array.ndim - 1))


def huggingface_config() -> dict:
    return {
        "model_type": "bert",
        "hidden_act": "gelu",
        "hidden_size": SIZES["width"],
        "intermediate_size": SIZES["feed_forward"],
        "layer_norm_eps": 1e-12,
        "max_position_embeddings": SIZES["max_length"],
        "num_attention_heads": HEADS,
        "num_hidden_layers": SIZES["layers"],
        "type_vocab_size": SIZES["type_vocabulary"],
        "vocab_size": len(PIECES),
    }


def write_huggingface(directory: Path, tensors=None, pieces=PIECES, **changes) -> Path:
    """Writes a directory that transformers can open. changes: keys of config.json; None removes a key."""
    directory.mkdir(parents=True, exist_ok=True)
    write_config(directory / "config.json", huggingface_config() | changes)
    write_vocabulary(directory, pieces)
    tensors = make_tensors() if tensors is None else tensors
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    return directory


def google_config() -> dict:
    config = huggingface_config()
    del config["model_type"], config["layer_norm_eps"]
    return config


def write_google(
    directory: Path, tensors=None, pieces=PIECES, name="bert_model.ckpt", **changes
) -> Path:
    """Writes a directory as the original program does."""
    import tensorflow as tf

    directory.mkdir(parents=True, exist_ok=True)
    write_config(directory / "bert_config.json", google_config() | changes)
    write_vocabulary(directory, pieces)
    tensors = make_tensors("google") if tensors is None else tensors
    tf.raw_ops.SaveV2(
        prefix=str(directory / name),
        tensor_names=list(tensors),
        shape_and_slices=[""] * len(tensors),
        tensors=[tf.constant(array) for array in tensors.values()],
    )
    return directory


def write_config(path: Path, values: dict) -> None:
    path.write_text(json.dumps({key: value for key, value in values.items() if value is not None}))


def write_vocabulary(directory: Path, pieces) -> None:
    lines = (piece + "\n" for piece in pieces)
    (directory / "vocab.txt").write_text("".join(lines), encoding="utf-8")


def copy(source: Path, target: Path) -> Path:
    """Copies a directory with writable files, so that a test can damage them."""
    return Path(shutil.copytree(source, target, copy_function=shutil.copyfile))


def read_json(path: Path) -> dict:
    return json.loads(path.read_text())


def assert_same_params(actual, expected, vocabulary) -> None:
    """Asserts the same bits of two trees of parameters; rows that pad the vocabulary apart."""
    actual, expected = names.by_path(actual), names.by_path(expected)
    assert actual.keys() == expected.keys()
    for path, array in expected.items():
        end = None
        if path.endswith(("/words", "lm/bias")):
            end = vocabulary.size
        np.testing.assert_array_equal(actual[path][:end], array[:end], err_msg=path)

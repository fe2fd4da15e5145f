"""Reads and writes checkpoints of Google's BERT: bert_config.json, vocab.txt and bert_model.ckpt.* of TensorFlow."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
from ml_collections import ConfigDict

from bert_jax.convert import bert, config_json, names
from bert_jax.convert import settings as conversion
from bert_jax.convert.external_model import ExternalModel
from bert_jax.errors import BadInput
from bert_jax.storage import json_file
from bert_jax.tokenizers import tokenizer as tokenizers
from bert_jax.tokenizers import wordpiece
from bert_jax.tokenizers.settings_files import SETTINGS

CONFIG = "bert_config.json"
CHECKPOINT = "bert_model.ckpt"

# Variables of the optimizer, which are not parameters.
STATE = re.compile(r"(.*/)?(global_step|(adam|lamb)_[mv]|Adam(_1)?|beta[12]_power|loss_scale)")
FLOATS = ("float32", "float16", "bfloat16")  # float32 represents all their values exactly


def matches(directory: Path) -> bool:
    """Returns whether a directory is in the format of Google's BERT."""
    return (directory / CONFIG).is_file() or bool(checkpoints(directory))


# --- Reading --------------------------------------------------------------------------------------


def read(directory: Path, head: str = "mlm", model: str = "") -> ExternalModel:
    """Reads settings, tokenizer and tensor names. Raises BadInput for a model that bert_jax does not support.

    bert_config.json does not say whether words are lower-cased: Google's BERT has a command-line option for it. It is
    read from tokenizer_config.json if that exists. Otherwise a model is cased if any piece has a capital letter (apart
    from special pieces in brackets), because such a piece is useless to an uncased model.

    head: see open_model.open_model.
    """
    path = directory / CONFIG
    values = json_file.read(path)
    settings = bert.read_settings(bert.from_google(values), path)
    settings |= {"name": "bert", **bert.BERT.plain}
    pieces = config_json.read_number(values, "vocab_size", path, 0)
    shapes, load = open_checkpoint(find_checkpoint(directory))
    if not head:
        shapes = {name: shapes[name] for name in shapes if name.startswith("bert/")}
    tokenizer = read_tokenizer(directory)
    return ExternalModel(directory, "google", settings, pieces, tokenizer, shapes, load)


def checkpoints(directory: Path) -> list[Path]:
    """Returns the checkpoints in a directory, by TensorFlow's names: the paths without .index."""
    return sorted(path.with_suffix("") for path in directory.glob("*.ckpt*.index"))


def find_checkpoint(directory: Path) -> Path:
    """Returns the only checkpoint."""
    paths = checkpoints(directory)
    if not paths:
        raise BadInput(f"{directory}: neither {CHECKPOINT}.index nor another *.ckpt*.index")
    if len(paths) > 1:
        several = ", ".join(path.name for path in paths)
        raise BadInput(f"{directory}: several checkpoints, {several}; move all but one away")
    return paths[0]


def open_checkpoint(path: Path) -> tuple[dict[str, tuple[int, ...]], Callable]:
    """Returns the shapes of a checkpoint's tensors, and a function that reads the tensor of a name.

    TensorFlow checks the CRC of index blocks and tensors. Raises BadInput, as does the function.
    """
    tensorflow = import_tensorflow(path)

    def call(function, argument: str, problem: str):
        try:
            return function(argument)
        # The library also raises built-in errors, for example for a truncated file.
        except (tensorflow.errors.OpError, IndexError, ValueError, RuntimeError) as error:
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            raise BadInput(f"{problem} ({reason})") from None

    reader = call(tensorflow.train.load_checkpoint, str(path), f"{path}.index: not readable")

    def load(name: str) -> np.ndarray:
        return call(reader.get_tensor, name, f"{path}: {name} cannot be read")

    types = reader.get_variable_to_dtype_map()
    shapes = {}
    for name, shape in sorted(reader.get_variable_to_shape_map().items()):
        if STATE.fullmatch(name):
            continue
        dtype = types[name].name
        if dtype not in FLOATS:
            expected = ", ".join(FLOATS)
            raise BadInput(f"{path}: {name} is {dtype}, expected one of {expected}")
        shapes[name] = tuple(shape)
    return shapes, load


def import_tensorflow(path: Path):
    """Imports TensorFlow, which takes seconds, and is often missing on accelerator machines. Raises BadInput."""
    try:
        import tensorflow
    except ImportError:
        raise BadInput(f"{path}: needs TensorFlow, which is not installed") from None
    return tensorflow


def read_tokenizer(directory: Path) -> tokenizers.Tokenizer:
    pieces = tokenizers.from_file(directory / wordpiece.FILE, lowercase=False).pieces
    lowercase = json_file.read_optional(directory / SETTINGS).get("do_lower_case")
    if not isinstance(lowercase, bool):
        ordinary = [piece for piece in pieces if not re.fullmatch(r"\[.*\]", piece)]
        lowercase = all(piece == piece.lower() for piece in ordinary)
    return wordpiece.WordPiece(pieces, lowercase)


# --- Writing --------------------------------------------------------------------------------------


def write(
    directory: Path,
    config: ConfigDict,
    vocabulary,
    tokenizer: tokenizers.Tokenizer,
    params,
) -> None:
    """Writes bert_config.json, vocab.txt, bert_model.ckpt.{index,data-00000-of-00001} and tokenizer_config.json.

    Google's BERT does not read the last one; it records for a later import whether words are lower-cased.

    config, params: of a model that names.exportable allows; the heads in params are written. Raises BadInput, before
    anything is written, for another tokenizer, or values that are not finite.
    """
    if tokenizer.kind != wordpiece.KIND or tokenizer.keep_accents:
        hint = "Google's BERT reads WordPiece alone, without tokenizer.keep_accents"
        raise BadInput(f"a {tokenizer.kind} tokenizer: {hint}")
    tensorflow = import_tensorflow(directory / CHECKPOINT)
    _, tensors = names.tensors(params, config, vocabulary.size, "google")
    settings = conversion.to_huggingface(config, vocabulary, bert.BERT)
    json_file.write(directory / CONFIG, bert.to_google(settings))
    tokenizer.write(directory)
    json_file.write(directory / SETTINGS, {"do_lower_case": tokenizer.lowercase})
    tensorflow.raw_ops.SaveV2(
        prefix=str(directory / CHECKPOINT),
        tensor_names=list(tensors),
        shape_and_slices=[""] * len(tensors),
        tensors=list(map(tensorflow.convert_to_tensor, tensors.values())),
    )

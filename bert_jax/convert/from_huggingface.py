"""Reads a directory of Hugging Face: config.json, safetensors, tokenizer files. Executes nothing in it."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from bert_jax.convert import config_json, names, pretrained_tokenizer
from bert_jax.convert import settings as conversion
from bert_jax.convert.architecture import Architecture
from bert_jax.convert.external_model import ExternalModel
from bert_jax.convert.settings import Labeler
from bert_jax.errors import BadInput, one_line
from bert_jax.storage import json_file
from bert_jax.tokenizers.special_tokens import SPECIAL

WEIGHTS = "model.safetensors"
SHARDS = "model-?????-of-?????.safetensors"
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json")

# float32 represents every value of these types exactly.
FLOATS = ("F32", "F16", "BF16")
# The wrappers of torch.compile, DataParallel and FSDP add these parts to names.
WRAPPERS = re.compile(r"\b(_orig_mod|module|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")


def matches(directory: Path) -> bool:
    """Returns whether a directory is in Hugging Face's format: it has such weights, or config.json and no weights."""
    if any(any(directory.glob(name)) for name in (WEIGHTS, SHARDS, *PICKLES)):
        return True
    if any(directory.glob("*.ckpt*.index")):
        return False
    path = directory / "config.json"
    return path.is_file() and "model_type" in json_file.read(path)


def read(directory: Path, head: str = "mlm", model: str = "") -> ExternalModel:
    """Reads settings, tokenizer and tensor names. Raises BadInput for a model that bert_jax does not support.

    head: see open_model.open_model. model: see names.find_model.
    """
    path = directory / "config.json"
    values = {"model_type": "bert"} | json_file.read(path)  # the oldest files lack it
    settings, architecture = conversion.from_huggingface(values, path, model)
    labeler = Labeler(architecture.objective)
    if head == "label":
        labeler = conversion.labeler_from_huggingface(values, path, architecture)
    files = open_files(directory)
    renamed = (name for _, name in architecture.renamed.values())
    layers = ("classifier", *architecture.label_layers.values(), *renamed)
    label_layers = {layer.split(".")[0] for layer in layers}

    def is_read(name: str) -> bool:
        if not head:
            return name.startswith(architecture.body)
        return labeler.objective in names.LABELERS or name.split(".")[0] not in label_layers

    tensors = rename(files, architecture, is_read, directory)

    def load(name: str) -> np.ndarray:
        return files[tensors[name]].get_tensor(tensors[name])

    check_tied(directory, architecture.tied, tensors, load)
    shapes = {}
    for name, stored in tensors.items():
        if name not in architecture.tied:
            shapes[name] = tuple(files[stored].get_slice(stored).get_shape())
    load, shapes = architecture.read_tensors(load, shapes, values)
    pieces = config_json.read_number(values, "vocab_size", path, 0)
    tokenizer = pretrained_tokenizer.read(directory, values, settings["name"], architecture)
    for key, token in architecture.tokens.items():
        expected = tokenizer.special.get(token)
        if values.get(key) != expected:
            hint = f"expected {expected!r}, the id of {SPECIAL[token]}"
            raise BadInput(f"{path}: {key} is {values.get(key)!r}, {hint}")
    return ExternalModel(
        directory, "huggingface", settings, pieces, tokenizer, shapes, load, labeler
    )


# --- Tensors --------------------------------------------------------------------------------------


def open_files(directory: Path) -> dict[str, Any]:
    """Returns {name of a tensor in its file: memory-mapped file}, from one safetensors file or from shards.

    Raises BadInput if a shard is missing.
    """
    paths = [*directory.glob(WEIGHTS)] or sorted(directory.glob(SHARDS))
    if not paths:
        refuse_other_formats(directory)
    if paths[0].name != WEIGHTS and f"{len(paths):05d}" != paths[0].stem[-5:]:
        raise BadInput(f"{paths[0]}: {len(paths)} shards are here, its name tells another number")
    files = {}
    for path in paths:
        file = open_weights(path)
        files |= dict.fromkeys(file.keys(), file)
    return files


def refuse_other_formats(directory: Path) -> None:
    """Raises BadInput: the directory has no safetensors."""
    for name in PICKLES:
        if (directory / name).exists():
            raise BadInput(
                f"{directory / name}: a PyTorch pickle can execute code, so it is not opened; if you trust it, load it"
                " in transformers and save it with save_pretrained, which writes safetensors"
            )
    raise BadInput(f"{directory}: no {WEIGHTS}")


def open_weights(path: Path):
    """Opens a memory-mapped safetensors file. Raises BadInput for a damaged header or size."""
    try:
        return safe_open(path, framework="numpy")
    except (SafetensorError, OSError) as error:
        raise BadInput(f"{path}: not a complete safetensors file ({one_line(error)})") from None


def rename(
    files: dict[str, Any], architecture: Architecture, is_read: Callable, directory: Path
) -> dict[str, str]:
    """Returns {name in names.py: name in the file}.

    Accepts older names, a bare network, and names inside of WRAPPERS; skips buffers.

    is_read: (name) -> whether it is read.

    Raises BadInput for other types than floats, and for buffers that must be zero.
    """
    tensors = {}
    for stored in files:
        name = WRAPPERS.sub("", stored)
        if name.startswith(architecture.bare):
            name = f"{architecture.body[0]}{name}"
        is_zero = name in architecture.zeros
        if is_zero and files[stored].get_tensor(stored).any():
            raise BadInput(f"{directory}: {stored} is not zero, which is not supported")
        if re.sub(r"\d+", "{}", name) in architecture.buffers or not is_read(name):
            continue
        name = name.replace("LayerNorm.gamma", "LayerNorm.weight")
        name = name.replace("LayerNorm.beta", "LayerNorm.bias")
        dtype = files[stored].get_slice(stored).get_dtype()
        if dtype not in FLOATS:
            raise BadInput(f"{directory}: {stored} is {dtype}, expected one of {FLOATS}")
        tensors[name] = stored
    for copy, name in architecture.tied.items():
        if copy in tensors:  # some files have a tensor under both names, others under one alone
            tensors.setdefault(name, tensors[copy])
    return tensors


def check_tied(directory: Path, tied: dict, tensors: dict[str, str], load: Callable) -> None:
    """Raises BadInput for a matrix of its own, such as that of the MLM head, where here it is the word embeddings."""
    for head, shared in tied.items():
        # Bits are compared, since NaN is reported later.
        if head in tensors and load(head).tobytes() != load(shared).tobytes():
            raise BadInput(
                f"{directory}: {tensors[head]} is not {tensors[shared]}; models whose output matrix is"
                " not tied to the word embeddings are not supported"
            )

"""A directory that Hugging Face transformers opens: the weights, config.json and the tokenizer's files."""

import json
import math
import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bert_jax.convert import names, settings, tokenizer_files
from bert_jax.errors import BadInput

# The class that has all of a model's parts: the first whose heads are there.
ARCHITECTURES = (
    ({"mlm", "pair"}, "BertForPreTraining"),
    ({"mlm"}, "BertForMaskedLM"),
    ({"pair"}, "BertForNextSentencePrediction"),
    (set(), "BertModel"),
)


class Tensor(NamedTuple):
    """A parameter on its way out."""

    name: str
    source: Any  # the array as it is here
    transposed: bool
    rows: int  # of its own, without those that pad the vocabulary

    @property
    def shape(self) -> tuple[int, ...]:
        rest = self.source.shape[1:]
        return (*rest, self.rows) if self.transposed else (self.rows, *rest)

    def array(self) -> np.ndarray:
        """float32, as it lies in the file; copied only where it is transposed."""
        array = np.asarray(self.source, np.float32)[: self.rows]
        return np.ascontiguousarray(array.T if self.transposed else array)


def write(directory: Path, config, vocabulary, tokenizer, params) -> list[str]:
    """Writes the directory's files, all but README.md, with what `params` has of a BERT; returns its parts."""
    parts, tensors = collect(config, vocabulary, params)
    write_tensors(directory / "model.safetensors", tensors)
    tokenizer_files.write_json(directory / "config.json", config_json(config, vocabulary, parts))
    tokenizer_files.write(directory, tokenizer, config.model.positions)
    return parts


def config_json(config, vocabulary, parts: list[str]) -> dict:
    return {
        "architectures": [next(name for heads, name in ARCHITECTURES if heads <= set(parts))],
        "model_type": "bert",
        **settings.to_huggingface(config.model, vocabulary.size),
        "pad_token_id": vocabulary.pad,
        "tie_word_embeddings": True,
        "dtype": "float32",
    }


def collect(config, vocabulary, params) -> tuple[list[str], list[Tensor]]:
    """The parts that a model has and their tensors, by the names of Hugging Face."""
    parts, tensors = [], []
    for parameter, source in names.present(params, config.model.layers):
        rows = vocabulary.size if parameter.padded else source.shape[0]
        transposed = "huggingface" in parameter.transposed
        tensors.append(Tensor(parameter.huggingface, source, transposed, rows))
        parts.append(parameter.part)
    return list(dict.fromkeys(parts)), tensors


def write_tensors(path: Path, tensors: list[Tensor]) -> None:
    """The safetensors format, one tensor after the other: no more than one of them is held twice.

    The library's writer wants all of them as they lie in the file at once, which is a second copy of every kernel.
    """
    table, end = {"__metadata__": {"format": "pt"}}, 0
    for tensor in tensors:
        start, end = end, end + 4 * math.prod(tensor.shape)
        offsets = {"data_offsets": [start, end]}
        table[tensor.name] = {"dtype": "F32", "shape": list(tensor.shape), **offsets}
    header = json.dumps(table, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        for tensor in tensors:
            array = tensor.array()
            # Of the extremes one is not finite where any element is not; no array of booleans is made.
            if not np.isfinite([array.min(), array.max()]).all():
                raise BadInput(f"{tensor.name}: the checkpoint's values are not finite")
            array.astype("<f4", copy=False).tofile(file)

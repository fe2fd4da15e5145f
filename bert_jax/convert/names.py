"""Names and layouts of BERT's parameters in bert_jax, in Hugging Face transformers and in Google's BERT.

D width, F feed-forward width, V vocabulary, P positions, S segments, C labels.
"""

from typing import Any, NamedTuple

import jax
import numpy as np

from bert_jax.errors import BadInput
from bert_jax.parallel import mesh as meshes

FORMATS = ("huggingface", "google")


class Labeler(NamedTuple):
    """The model of transformers for an objective with the dense layer `label`."""

    architecture: str  # its class
    layer: str  # its name for `label`
    task: str  # as the hub names it


LABELERS = {
    "classifier": Labeler("BertForSequenceClassification", "classifier", "text-classification"),
    "token_classifier": Labeler("BertForTokenClassification", "classifier", "token-classification"),
    "spans": Labeler("BertForQuestionAnswering", "qa_outputs", "question-answering"),
    "multiple_choice": Labeler("BertForMultipleChoice", "classifier", "multiple-choice"),
}

# (kind, axes, name in bert_jax, in Hugging Face). A norm has a `scale` and a `bias`, a dense layer a `kernel` and a
# `bias`.
NORM, DENSE, SINGLE = "scale", "kernel", ""
EMBEDDINGS = (
    (SINGLE, "VD", "embedder/words", "word_embeddings.weight"),
    (SINGLE, "PD", "embedder/positions", "position_embeddings.weight"),
    (SINGLE, "SD", "embedder/segments", "token_type_embeddings.weight"),
    (NORM, "D", "embedder_norm", "LayerNorm"),
)
BLOCK = (
    (DENSE, "DD", "attention/query", "attention.self.query"),
    (DENSE, "DD", "attention/key", "attention.self.key"),
    (DENSE, "DD", "attention/value", "attention.self.value"),
    (DENSE, "DD", "attention/out", "attention.output.dense"),
    (NORM, "D", "attention_norm", "attention.output.LayerNorm"),
    (DENSE, "DF", "feed_forward/up", "intermediate.dense"),
    (DENSE, "FD", "feed_forward/down", "output.dense"),
    (NORM, "D", "feed_forward_norm", "output.LayerNorm"),
)
MLM = (
    (DENSE, "DD", "dense", "transform.dense"),
    (NORM, "D", "norm", "transform.LayerNorm"),
    (SINGLE, "V", "bias", "bias"),
)
# (part, scope in bert_jax, in Hugging Face, its rows); {} is the number of a layer.
PARTS = (
    ("encoder", "encoder/", "bert.embeddings.", EMBEDDINGS),
    ("encoder", "encoder/blocks_{}/", "bert.encoder.layer.{}.", BLOCK),
    ("pooler", "encoder/", "bert.", [(DENSE, "DD", "pooler", "pooler.dense")]),
    ("mlm", "mlm/", "cls.predictions.", MLM),
    ("pair", "", "cls.", [(DENSE, "D2", "pair", "seq_relationship")]),
)
# Replacements, one after the other, that turn Hugging Face's names into Google's.
GOOGLE = {
    "_embeddings.weight": "_embeddings",
    "LayerNorm.weight": "LayerNorm.gamma",
    "LayerNorm.bias": "LayerNorm.beta",
    "seq_relationship.weight": "seq_relationship.output_weights",
    "seq_relationship.bias": "seq_relationship.output_bias",
    "predictions.bias": "predictions.output_bias",
    ".weight": ".kernel",
    "layer.": "layer_",
    ".": "/",
}


class Parameter(NamedTuple):
    """A parameter and its names. A model has all parameters of a part, or none."""

    part: str  # encoder, pooler, mlm, pair or label
    axes: str  # in bert_jax, where V is padded to a multiple of 128
    path: str  # in bert_jax
    huggingface: str

    @property
    def google(self) -> str:
        name = self.huggingface
        for theirs, new in GOOGLE.items():
            name = name.replace(theirs, new)
        return name

    @property
    def transposed(self) -> tuple[str, ...]:
        """The formats that store it transposed."""
        if not self.path.endswith("/kernel"):
            return ()
        # The one matrix that Google's BERT stores transposed, too, is that of the pair head.
        return FORMATS if self.part == "pair" else ("huggingface",)

    @property
    def padded(self) -> bool:
        return self.axes[0] == "V"


def parameters(layers: int) -> list[Parameter]:
    """Returns all parameters of a BERT with this number of layers, its pooler and both heads."""
    table = []
    for part, ours, theirs, rows in PARTS:
        for number in range(layers if "{}" in ours else 1):
            table += expand(part, ours.format(number), theirs.format(number), rows)
    return table


def expand(part: str, ours: str, theirs: str, rows) -> list[Parameter]:
    """Returns the parameters of the rows of a table, inside a scope of each format."""
    expanded = []
    for kind, axes, path, name in rows:
        path, name = ours + path, theirs + name
        if kind == SINGLE:
            expanded.append(Parameter(part, axes, path, name))
        else:
            expanded.append(Parameter(part, axes, f"{path}/{kind}", f"{name}.weight"))
            expanded.append(Parameter(part, axes[-1], f"{path}/bias", f"{name}.bias"))
    return expanded


def exportable(format: str) -> dict[str, tuple]:
    """Returns {key of a run: the values that the format has}; a run may lack some of the keys."""
    if format == "google":  # whose gelu is the tanh approximation
        own = {"model.activation": ("gelu_tanh", "relu"), "model.epsilon": (1e-12,)}
    else:
        own = {"objective.features": ("last",), "objective.pool": ("cls",)}
    labelers = LABELERS if format == "huggingface" else ()
    return {"model.name": ("bert",), "objective.name": ("mlm", *labelers)} | own


def tensors(params, config, pieces: int, format: str) -> tuple[list[str], dict[str, np.ndarray]]:
    """Returns the parts of a model, and its float32 tensors in the names and the layout of a format.

    params: what `by_path` accepts; parameters without a name are left out. pieces: size of the vocabulary. Raises
    BadInput for NaN or infinite values.
    """
    arrays, table, parts = by_path(params), parameters(config.model.layers), []
    if labeler := LABELERS.get(config.objective.name):
        table += expand("label", "", "", [(DENSE, "DC", "label", labeler.layer)])
    found = {}
    for item in table:
        if item.path not in arrays:
            continue
        name, array = getattr(item, format), np.asarray(arrays[item.path], np.float32)
        array = array[: pieces if item.padded else None]
        # If any element is not finite, neither is the minimum or the maximum. This saves an array of booleans.
        if not np.isfinite([array.min(), array.max()]).all():
            raise BadInput(f"{name}: the checkpoint has NaN or infinite values")
        found[name] = np.ascontiguousarray(array.T if format in item.transposed else array)
        parts.append(item.part)
    return list(dict.fromkeys(parts)), found


def by_path(tree) -> dict[str, Any]:
    """Returns {path: leaf} of a tree, with paths as 'encoder/blocks_0/attention/query/kernel'."""
    return {meshes.path_name(path): leaf for path, leaf in jax.tree.leaves_with_path(tree)}


def shape(parameter: Parameter, model, vocabulary: int, format: str = "") -> tuple[int, ...]:
    """Returns its shape without padding, from the keys of config.model, in `format` or (by default) in bert_jax."""
    sizes = {"D": model["width"], "F": model["feed_forward"] or 4 * model["width"]}
    sizes |= {"V": vocabulary, "P": model["max_length"], "S": model["type_vocabulary"], "2": 2}
    dimensions = tuple(sizes[axis] for axis in parameter.axes)
    return dimensions[::-1] if format in parameter.transposed else dimensions

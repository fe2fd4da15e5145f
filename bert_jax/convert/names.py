"""Names and layouts of parameters in bert_jax, in Hugging Face transformers and in Google's BERT.

D width, F feed-forward width, V vocabulary, P positions, S segments, C labels.
"""

from typing import Any, NamedTuple

import jax
import numpy as np

from bert_jax.convert import modernbert
from bert_jax.errors import BadInput
from bert_jax.parallel import mesh as meshes

FORMATS = ("huggingface", "google")


# Values of the keys of config.model for which BERT has no settings.
PLAIN = {"norm": "post", "gated": False, "positions": "learned"}
# {config.model.name: beginning of the classes in transformers}
CLASSES = {"bert": "Bert", "modernbert": "ModernBert"}
# {objective with the dense layer `label`: (end of the class in transformers, task as the hub names it, task here)}
LABELERS = {
    "classifier": ("ForSequenceClassification", "text-classification", "classify"),
    "token_classifier": ("ForTokenClassification", "token-classification", "entities"),
    "spans": ("ForQuestionAnswering", "question-answering", "squad"),
    "multiple_choice": ("ForMultipleChoice", "multiple-choice", "choice"),
}

# (axes, name in bert_jax, in Hugging Face) of a tensor, of a dense layer with `kernel` and `bias`, or of a norm with
# `scale` and `bias`.
EMBEDDINGS = (
    ("VD", "embedder/words", "word_embeddings.weight"),
    ("PD", "embedder/positions", "position_embeddings.weight"),
    ("SD", "embedder/segments", "token_type_embeddings.weight"),
    ("D", "embedder_norm", "LayerNorm"),
)
BLOCK = (
    ("DD", "attention/query", "attention.self.query"),
    ("DD", "attention/key", "attention.self.key"),
    ("DD", "attention/value", "attention.self.value"),
    ("DD", "attention/out", "attention.output.dense"),
    ("D", "attention_norm", "attention.output.LayerNorm"),
    ("DF", "feed_forward/up", "intermediate.dense"),
    ("FD", "feed_forward/down", "output.dense"),
    ("D", "feed_forward_norm", "output.LayerNorm"),
)
MLM = (
    ("DD", "dense", "transform.dense"),
    ("D", "norm", "transform.LayerNorm"),
    ("V", "bias", "bias"),
)
# {config.model.name: (part, scope in bert_jax, in Hugging Face, its rows)}; {} is the number of a layer.
PARTS = {
    "bert": (
        ("encoder", "encoder/", "bert.embeddings.", EMBEDDINGS),
        ("encoder", "encoder/blocks_{}/", "bert.encoder.layer.{}.", BLOCK),
        ("pooler", "encoder/", "bert.", [("DD", "pooler", "pooler.dense")]),
        ("mlm", "mlm/", "cls.predictions.", MLM),
        ("pair", "", "cls.", [("D2", "pair", "seq_relationship")]),
    ),
    "modernbert": modernbert.PARTS,
}
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

    part: str  # encoder, pooler, head, mlm, pair or label
    axes: str  # in bert_jax, where V is padded to a multiple of 128
    path: str  # in bert_jax
    huggingface: str
    place: int = 0  # among the parameters of the tensor in Hugging Face
    number: int = 1  # of these parameters

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


def parameters(model, objective: str = "") -> list[Parameter]:
    """Returns all parameters of a model with the keys `name` and `layers`, heads included; the word embeddings are the
    first, the dense layer of an objective of LABELERS is the last. A model that no other program has gives none."""
    table = []
    for part, ours, theirs, rows, *first in PARTS.get(model["name"], ()):
        for number in range(*first, model["layers"] if "{}" in ours else 1):
            table += expand(part, ours.format(number), theirs.format(number), rows)
    if table and objective in LABELERS:
        is_bert = model["name"] == "bert"
        layer = "qa_outputs" if is_bert and objective == "spans" else "classifier"
        table += expand("label", "", "", [("DC", "label", layer)])
    return table


def expand(part: str, ours: str, theirs: str, rows) -> list[Parameter]:
    """Returns the parameters of the rows of a table, inside a scope of bert_jax and of Hugging Face."""
    expanded = []
    for axes, path, name, *stack in rows:
        path, name = ours + path, theirs + name
        if name.endswith(("weight", "bias")):
            expanded.append(Parameter(part, axes, path, name, *stack))
        else:
            weight = "kernel" if len(axes) > 1 else "scale"
            expanded.append(Parameter(part, axes, f"{path}/{weight}", f"{name}.weight"))
            expanded.append(Parameter(part, axes[-1], f"{path}/bias", f"{name}.bias"))
    return expanded


def exportable(format: str, model: str) -> dict[str, tuple]:
    """Returns {key of a run: the values that the format has}; a run may lack some of the keys. model: its name."""
    plain = {f"model.{key}": (value,) for key, value in PLAIN.items()}
    if format == "google":  # whose gelu is the tanh approximation
        own = {"model.activation": ("gelu_tanh", "relu"), "model.epsilon": (1e-12,)}
        return {"model.name": ("bert",), "objective.name": ("mlm",)} | own | plain
    pools = ("cls",) if model == "bert" else ("cls", "first", "mean")
    own = {"objective.features": ("last",), "objective.pool": pools}
    return {"model.name": tuple(PARTS), "objective.name": ("mlm", *LABELERS)} | own | plain


def tensors(params, config, pieces: int, format: str) -> tuple[list[str], dict[str, np.ndarray]]:
    """Returns the parts of a model, and its float32 tensors in the names and the layout of a format.

    params: what `by_path` accepts; parameters without a name are left out. pieces: size of the vocabulary. Raises
    BadInput for NaN or infinite values.
    """
    arrays, table = by_path(params), parameters(config.model, config.objective.name)
    present, found = [item for item in table if item.path in arrays], {}
    for item in present:
        name, array = getattr(item, format), np.asarray(arrays[item.path], np.float32)
        array = array[: pieces if item.padded else None]
        # If any element is not finite, neither is the minimum or the maximum. This saves an array of booleans.
        if not np.isfinite([array.min(), array.max()]).all():
            raise BadInput(f"{name}: the checkpoint has NaN or infinite values")
        found.setdefault(name, []).append(array.T if format in item.transposed else array)
    parts = list(dict.fromkeys(item.part for item in present))
    return parts, {n: np.ascontiguousarray(np.concatenate(each)) for n, each in found.items()}


def by_path(tree) -> dict[str, Any]:
    """Returns {path: leaf} of a tree, with paths as 'encoder/blocks_0/attention/query/kernel'."""
    return {meshes.path_name(path): leaf for path, leaf in jax.tree.leaves_with_path(tree)}


def shape(parameter: Parameter, model, vocabulary: int, format: str = "") -> tuple[int, ...]:
    """Returns its shape without padding, from the keys of config.model and `outputs`, the number of logits, in `format`
    or (by default) in bert_jax."""
    sizes = {"D": model["width"], "F": model["feed_forward"] or 4 * model["width"], "2": 2}
    sizes |= {"V": vocabulary, "P": model["max_length"], "S": model.get("type_vocabulary")}
    sizes |= {"C": model.get("outputs")}
    dimensions = [sizes[axis] for axis in parameter.axes]
    if format in parameter.transposed:
        dimensions.reverse()
        dimensions[0] *= parameter.number
    return tuple(dimensions)

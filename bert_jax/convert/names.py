"""Names and layouts of parameters in bert_jax, in Hugging Face transformers and in Google's BERT.

D width, F feed-forward width, V vocabulary, P positions, S segments, C labels.
"""

from typing import Any, NamedTuple

import jax
import numpy as np

from bert_jax.convert import bert, modernbert
from bert_jax.errors import BadInput
from bert_jax.parallel import mesh as meshes

FORMATS = ("huggingface", "google")
# {config.model.name, and model_type in transformers: the file of its names and settings}. A file has
#
#     CLASS, BODY, BARE, BUFFERS, TIED, LABEL_LAYERS, POOLS, KEYS, FIXED
#     PARTS                               (part, scope in bert_jax, in transformers, its rows); {} is the number of
#                                         a layer, from 0 or the number at the end on
#     read_settings(values, path)         config.json -> keys of config.model
#     write_settings(model, vocabulary)   config.model -> keys of config.json besides KEYS and FIXED
#     write_label_settings(config)        the same of a fine-tuned model
#
# A row is (axes, name in bert_jax, in transformers) of a tensor, of a dense layer with `kernel` and `bias`, or of a
# norm with `scale` and `bias`.
ARCHITECTURES = {"bert": bert, "modernbert": modernbert}

# {objective with the dense layer `label`: (end of the class in transformers, task as the hub names it, task here)}
LABELERS = {
    "classifier": ("ForSequenceClassification", "text-classification", "classification"),
    "token_classifier": ("ForTokenClassification", "token-classification", "token_classification"),
    "spans": ("ForQuestionAnswering", "question-answering", "question_answering"),
    "multiple_choice": ("ForMultipleChoice", "multiple-choice", "multiple_choice"),
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
    architecture = ARCHITECTURES.get(model["name"])
    if not architecture:
        return []
    table = []
    for part, ours, theirs, rows, *first in architecture.PARTS:
        layers = model["layers"] if "{}" in ours else 1
        for number in range(*first, layers):
            table += expand(part, ours.format(number), theirs.format(number), rows)
    if objective in LABELERS:
        layer = architecture.LABEL_LAYERS.get(objective, "classifier")
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
    values = {f"model.{key}": (value,) for key, value in bert.PLAIN.items()}
    if format == "google":
        return values | {
            "model.name": ("bert",),
            "objective.name": ("mlm",),
            "model.activation": ("gelu_tanh", "relu"),  # its gelu is the tanh approximation
            "model.epsilon": (bert.ORIGINAL_EPSILON,),
        }
    values |= {
        "model.name": tuple(ARCHITECTURES),
        "objective.name": ("mlm", *LABELERS),
        "objective.features": ("last",),
    }
    if model in ARCHITECTURES:
        values["objective.pool"] = ARCHITECTURES[model].POOLS
    return values


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

"""Names and layouts of parameters in bert_jax, in Hugging Face transformers and in Google's BERT.

D width, F feed-forward width, V vocabulary, P positions, S segments, C labels.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert_jax.convert import (
    albert,
    bert,
    decoders,
    electra,
    gpt2,
    marian,
    modernbert,
    openai_gpt,
    roberta,
)
from bert_jax.convert.architecture import Architecture
from bert_jax.errors import BadInput
from bert_jax.parallel.mesh import by_path
from bert_jax.registry import find_part

FORMATS = ("huggingface", "google")
# {config.model.name: its architecture}. A model outside of the package has it as ARCHITECTURE in its file.
ARCHITECTURES = {
    "bert": bert.BERT,
    "albert": albert.ALBERT,
    "electra": electra.ELECTRA,
    "modernbert": modernbert.MODERNBERT,
    "roberta": roberta.ROBERTA,
    "transformer": marian.MARIAN,
    "gpt": gpt2.GPT2,
}
POST_NORM = {"gpt": openai_gpt.GPT}  # the same of those that have another one for model.norm=post
# The same of those that have another one for its `objective`.
DECODERS = {"bert": decoders.BERT, "modernbert": decoders.MODERNBERT}

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

    part: str  # network, decoder, pooler, head, mlm, lm, pair, replaced or label
    axes: str  # in bert_jax, where V is padded to a multiple of 128
    path: str  # in bert_jax
    huggingface: str
    place: int = 0  # among the parameters of the tensor in Hugging Face
    number: int = 1  # of these parameters
    # Whether Hugging Face has a matrix in the layout of PyTorch's linear layers.
    is_linear: bool = True

    @property
    def google(self) -> str:
        name = self.huggingface
        for part, replacement in GOOGLE.items():
            name = name.replace(part, replacement)
        return name

    @property
    def transposed(self) -> tuple[str, ...]:
        """The formats that store it transposed."""
        if not (self.is_linear and len(self.axes) == 2 and self.path.endswith("/kernel")):
            return ()
        # The one matrix that Google's BERT stores transposed, too, is that of the pair head.
        return FORMATS if self.part == "pair" else ("huggingface",)

    def stacked(self, format: str) -> int:
        """Returns the axis of a format's tensor along which parameters are stacked."""
        return 0 if format in self.transposed else -1

    @property
    def padded(self) -> bool:
        return self.axes[0] == "V"


def find_architecture(model, objective: str = "") -> Architecture | None:
    """Returns a model's architecture; None if no other program has it.

    model: config.model, or its keys `name` and, in POST_NORM, `norm`.
    objective: objective.name.
    """
    name = model["name"]
    if "." in name:
        return find_part("model", name).ARCHITECTURE
    decoder = DECODERS.get(name)
    if decoder and objective == decoder.objective:
        return decoder
    if model.get("norm") == "post" and name in POST_NORM:
        return POST_NORM[name]
    return ARCHITECTURES.get(name)


def parameters(model, objective: str = "") -> list[Parameter]:
    """Returns all parameters of a model with its heads; none for a model that no other program has.

    The word embeddings are the first, the dense layer of an objective of LABELERS is the last.

    model: config.model, or its keys for `find_architecture`, `layers` and, with a decoder, `decoder_layers`.
    """
    architecture = find_architecture(model, objective)
    if not architecture:
        return []
    absent = {axis for axis, size in architecture.sizes(model).items() if size == 0}
    table = []
    for part, scope, scope_there, rows, *first in architecture.parts:
        layers = 1
        rows = [row for row in rows if absent.isdisjoint(row[0])]
        if "{}" in scope:
            layers = model["decoder_layers" if part == "decoder" else "layers"]
        for number in range(*first, layers):
            table += expand(part, scope.format(number), scope_there.format(number), rows)
    is_linear = architecture.is_transposed
    renamed = architecture.renamed.get(objective, ("", ""))
    table = [
        entry._replace(is_linear=is_linear, huggingface=entry.huggingface.replace(*renamed))
        for entry in table
    ]
    if objective in LABELERS:
        layer = architecture.label_layers.get(objective, "classifier")
        table += expand("label", "", "", [("DC", "label", layer)])
    return table


def find_model(values: dict, path: Path, outside: str = "") -> tuple[str, Architecture]:
    """Returns config.model.name of a config.json, and its architecture.

    outside: config.model.name, if that may be a model outside of the package.

    Raises BadInput for an unknown model_type.
    """
    # Of two architectures with one model_type, the encoder's is the last.
    pairs = [*DECODERS.items(), *ARCHITECTURES.items(), *POST_NORM.items()]
    if "." in outside and (architecture := find_part("model", outside).ARCHITECTURE):
        pairs.append((outside, architecture))
    types = {architecture.model_type: (name, architecture) for name, architecture in pairs}
    model_type = values.get("model_type")
    if model_type not in tuple(types):  # a list cannot be looked up in a dict
        expected = ", ".join(types)
        raise BadInput(f"{path}: model_type is {model_type!r}, expected one of {expected}")
    name, architecture = types[model_type]
    if values.get("is_decoder"):
        architecture = DECODERS.get(name, architecture)
    return name, architecture


def expand(part: str, scope: str, scope_there: str, rows) -> list[Parameter]:
    """Returns the parameters of the rows of a table, inside a scope of bert_jax and of Hugging Face."""
    expanded = []
    for axes, path, name, *stack in rows:
        path = scope + path
        name = scope_there + name
        if stack or name.endswith(("weight", "bias")):
            expanded.append(Parameter(part, axes, path, name, *stack))
        else:
            weight = "kernel" if len(axes) > 1 else "scale"
            expanded.append(Parameter(part, axes, f"{path}/{weight}", f"{name}.weight"))
            expanded.append(Parameter(part, axes[-1], f"{path}/bias", f"{name}.bias"))
    return expanded


def exportable(format: str, config) -> dict[str, tuple]:
    """Returns {key of a run: the values that the format has}; a run may lack some of the keys."""
    model = config.model
    architecture = find_architecture(model, config.objective.name)
    if not architecture:
        return {"model.name": tuple(ARCHITECTURES)}
    values = {f"model.{key}": (value,) for key, value in architecture.plain.items()}
    for key, choices in architecture.choices(model).items():
        values[f"model.{key}"] = choices
    if format == "google":
        return values | {
            "model.name": ("bert",),
            "objective.name": ("mlm",),
            "model.activation": ("gelu_tanh", "relu"),  # its gelu is the tanh approximation
            "model.epsilon": (bert.ORIGINAL_EPSILON,),
        }
    return values | {
        "objective.name": tuple(architecture.objectives or (*architecture.pretraining, *LABELERS)),
        "objective.causal": (False,),
        "objective.features": ("last",),
        "task.both_orders": (False,),
        "objective.pool": architecture.pools,
    }


def find_class(config, *default: str) -> tuple[str, str]:
    """Returns the end of the class of a model in transformers, and its task; the default if its heads decide."""
    architecture = find_architecture(config.model, config.objective.name)
    classes = architecture.objectives or LABELERS
    return classes.get(config.objective.name, default)[:2]


def tensors(params, config, pieces: int, format: str) -> tuple[list[str], dict[str, np.ndarray]]:
    """Returns the parts of a model, and its float32 tensors in the names and the layout of a format.

    params: what `by_path` accepts; parameters without a name are left out.
    pieces: size of the vocabulary.

    Raises BadInput for NaN or infinite values.
    """
    leaves = by_path(params)
    parts = {}
    arrays = {}
    for parameter in parameters(config.model, config.objective.name):
        if parameter.path not in leaves:
            continue
        name = getattr(parameter, format)
        array = np.asarray(leaves[parameter.path], np.float32)
        if parameter.padded:
            array = array[:pieces]
        array = reorder(array, parameter, config.model)
        # If any element is not finite, neither is the minimum or the maximum. This saves an array of booleans.
        if not np.isfinite([array.min(), array.max()]).all():
            raise BadInput(f"{name}: the checkpoint has NaN or infinite values")
        if format in parameter.transposed:
            array = array.T
        parts[parameter.part] = True
        arrays.setdefault((name, parameter.stacked(format)), []).append(array)
    stacked = {
        name: np.ascontiguousarray(np.concatenate(stack, axis))
        for (name, axis), stack in arrays.items()
    }
    return list(parts), stacked


def reorder(array: np.ndarray, parameter: Parameter, model, to_ours: bool = False) -> np.ndarray:
    """Returns a parameter, in the layout of bert_jax, in the order of transformers, or from that in the order here."""
    architecture = find_architecture(model)
    for axis, order in architecture.orders(model).items():
        if axis in parameter.axes:
            if to_ours:
                order = np.argsort(order)
            array = np.take(array, order, axis=parameter.axes.index(axis))
    return array


def shape(parameter: Parameter, model, vocabulary: int, format: str = "") -> tuple[int, ...]:
    """Returns its shape without padding.

    model: the keys of config.model and `outputs`, the number of logits.
    format: the one whose layout it has; bert_jax by default.
    """
    sizes = {
        "2": 2,
        "C": model.get("outputs"),
        "D": model["width"],
        "F": model["feed_forward"],
        "P": model["max_length"],
        "S": model.get("type_vocabulary"),
        "V": vocabulary,
    }
    sizes |= find_architecture(model).sizes(model)
    dimensions = [sizes[axis] for axis in parameter.axes]
    if format in parameter.transposed:
        dimensions.reverse()
    if format:
        dimensions[parameter.stacked(format)] *= parameter.number
    return tuple(dimensions)

"""Names and layouts of BERT's parameters in bert_jax, in Hugging Face transformers and in Google's BERT.

D width, F feed-forward width, V vocabulary, P positions, S segments.
"""

from typing import Any, NamedTuple

import jax

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

# (kind, axes, name in bert_jax, in Hugging Face, in Google's BERT). A norm has a `scale` and a `bias`, a dense layer a
# `kernel` and a `bias`.
NORM, DENSE, SINGLE = "norm", "dense", "single"
EMBEDDINGS = (
    (SINGLE, "VD", "embedder/words", "word_embeddings.weight", "word_embeddings"),
    (SINGLE, "PD", "embedder/positions", "position_embeddings.weight", "position_embeddings"),
    (SINGLE, "SD", "embedder/segments", "token_type_embeddings.weight", "token_type_embeddings"),
    (NORM, "D", "embedder_norm", "LayerNorm", "LayerNorm"),
)
BLOCK = (
    (DENSE, "DD", "attention/query", "attention.self.query", "attention/self/query"),
    (DENSE, "DD", "attention/key", "attention.self.key", "attention/self/key"),
    (DENSE, "DD", "attention/value", "attention.self.value", "attention/self/value"),
    (DENSE, "DD", "attention/out", "attention.output.dense", "attention/output/dense"),
    (NORM, "D", "attention_norm", "attention.output.LayerNorm", "attention/output/LayerNorm"),
    (DENSE, "DF", "feed_forward/up", "intermediate.dense", "intermediate/dense"),
    (DENSE, "FD", "feed_forward/down", "output.dense", "output/dense"),
    (NORM, "D", "feed_forward_norm", "output.LayerNorm", "output/LayerNorm"),
)
POOLER = ((DENSE, "DD", "pooler", "pooler.dense", "pooler/dense"),)
MLM = (
    (DENSE, "DD", "dense", "transform.dense", "transform/dense"),
    (NORM, "D", "norm", "transform.LayerNorm", "transform/LayerNorm"),
    (SINGLE, "V", "bias", "bias", "output_bias"),
)


class Parameter(NamedTuple):
    """A parameter and its names. A model has all parameters of a part, or none."""

    part: str  # encoder, pooler, mlm, pair or label
    axes: str  # in bert_jax, where V is padded to a multiple of 128
    path: str  # in bert_jax
    huggingface: str
    google: str
    transposed: tuple[str, ...] = ()  # the formats that store it transposed

    @property
    def padded(self) -> bool:
        return self.axes[0] == "V"


def parameters(layers: int) -> list[Parameter]:
    """Returns all parameters of a BERT with this number of layers, its pooler and both heads."""
    table = expand("encoder", EMBEDDINGS, "encoder", "bert.embeddings", "bert/embeddings")
    for number in range(layers):
        scopes = f"bert.encoder.layer.{number}", f"bert/encoder/layer_{number}"
        table += expand("encoder", BLOCK, f"encoder/blocks_{number}", *scopes)
    table += expand("pooler", POOLER, "encoder", "bert", "bert")
    table += expand("mlm", MLM, "mlm", "cls.predictions", "cls/predictions")
    huggingface, google = "cls.seq_relationship", "cls/seq_relationship"
    # The one matrix that Google's BERT stores transposed, too.
    weights = f"{huggingface}.weight", f"{google}/output_weights", FORMATS
    biases = f"{huggingface}.bias", f"{google}/output_bias"
    table.append(Parameter("pair", "D2", "pair/kernel", *weights))
    table.append(Parameter("pair", "2", "pair/bias", *biases))
    return table


def exportable(format: str) -> dict[str, tuple[str, ...]]:
    """Returns {key of a run: the values whose parameters the format has}; a run may lack the last two keys."""
    return {
        "model.name": ("bert",),
        "objective.name": ("mlm", *(LABELERS if format == "huggingface" else ())),
        "objective.features": ("last",),
        "objective.pool": ("cls",),
    }


def with_arrays(params, layers: int, objective: str = "") -> list[tuple[Parameter, Any]]:
    """Returns the parameters that the tree `params` has, with their arrays, in the order of `parameters`; those of
    `label`, which the name of the objective decides, are the last."""
    leaves, table = by_path(params), parameters(layers)
    if labeler := LABELERS.get(objective):
        kernel = f"{labeler.layer}.weight", "", ("huggingface",)
        table.append(Parameter("label", "DC", "label/kernel", *kernel))
        table.append(Parameter("label", "C", "label/bias", f"{labeler.layer}.bias", ""))
    return [(item, leaves[item.path]) for item in table if item.path in leaves]


def drop_parts(params: dict, parts: list[str]) -> dict:
    """Returns the parameters without these parts: mlm, pair or pooler."""
    kept = {name: tree for name, tree in params.items() if name not in parts}
    encoder = {name: tree for name, tree in params["encoder"].items() if name not in parts}
    return kept | {"encoder": encoder}


def by_path(tree) -> dict[str, Any]:
    """Returns {path: leaf} of a tree, with paths as 'encoder/blocks_0/attention/query/kernel'."""
    return {meshes.path_name(path): leaf for path, leaf in jax.tree.leaves_with_path(tree)}


def expand(part: str, rows, path: str, huggingface: str, google: str) -> list[Parameter]:
    """Returns the parameters of the rows of a table, inside a scope of each format."""
    expanded = []
    for kind, axes, *last in rows:
        scopes = zip((path, huggingface, google), "/./", last, strict=True)
        a, b, c = (f"{scope}{separator}{name}" for scope, separator, name in scopes)
        if kind == SINGLE:
            expanded.append(Parameter(part, axes, a, b, c))
        elif kind == NORM:
            expanded.append(Parameter(part, axes, f"{a}/scale", f"{b}.weight", f"{c}/gamma"))
            expanded.append(Parameter(part, axes, f"{a}/bias", f"{b}.bias", f"{c}/beta"))
        else:
            kernel = f"{a}/kernel", f"{b}.weight", f"{c}/kernel", ("huggingface",)
            expanded.append(Parameter(part, axes, *kernel))
            expanded.append(Parameter(part, axes[-1], f"{a}/bias", f"{b}.bias", f"{c}/bias"))
    return expanded


def shape(parameter: Parameter, model, vocabulary: int, format: str = "") -> tuple[int, ...]:
    """Returns its shape without padding, from the keys of config.model, in `format` or (by default) in bert_jax."""
    sizes = {"D": model["width"], "F": model["feed_forward"] or 4 * model["width"]}
    sizes |= {"V": vocabulary, "P": model["max_length"], "S": model["type_vocabulary"], "2": 2}
    dimensions = tuple(sizes[axis] for axis in parameter.axes)
    return dimensions[::-1] if format in parameter.transposed else dimensions

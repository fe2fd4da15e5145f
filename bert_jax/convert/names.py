"""What each parameter of BERT is called here, by Hugging Face and by the original program, and how it lies there.

D width, F feed-forward width, V vocabulary, P positions, S segments.
"""

from typing import Any, NamedTuple

import jax

FORMATS = ("huggingface", "google")

# Kind, axes, and the names: ours, Hugging Face's, the original's. A norm has a `scale` and a `bias`, a dense layer a
# `kernel` and a `bias`.
NORM, DENSE, ALONE = "norm", "dense", "alone"
EMBEDDINGS = (
    (ALONE, "VD", "embedder/words", "word_embeddings.weight", "word_embeddings"),
    (ALONE, "PD", "embedder/positions", "position_embeddings.weight", "position_embeddings"),
    (ALONE, "SD", "embedder/segments", "token_type_embeddings.weight", "token_type_embeddings"),
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
    (ALONE, "V", "bias", "bias", "output_bias"),
)


class Parameter(NamedTuple):
    """One parameter and its names; `part` is encoder, pooler, mlm or pair: a model has all of a part or nothing."""

    part: str
    axes: str  # here; V comes padded to a multiple of 128 here, nowhere else
    path: str  # ours
    huggingface: str
    google: str
    transposed: tuple[str, ...] = ()  # the formats in which it lies transposed

    @property
    def padded(self) -> bool:
        return self.axes[0] == "V"


def parameters(layers: int) -> list[Parameter]:
    """All parameters of a BERT of so many layers with its pooler and both heads."""
    found = named("encoder", EMBEDDINGS, "encoder", "bert.embeddings", "bert/embeddings")
    for number in range(layers):
        places = f"bert.encoder.layer.{number}", f"bert/encoder/layer_{number}"
        found += named("encoder", BLOCK, f"encoder/blocks_{number}", *places)
    found += named("pooler", POOLER, "encoder", "bert", "bert")
    found += named("mlm", MLM, "mlm", "cls.predictions", "cls/predictions")
    theirs, original = "cls.seq_relationship", "cls/seq_relationship"
    # The one matrix that the original keeps transposed, too.
    weights = f"{theirs}.weight", f"{original}/output_weights", FORMATS
    found.append(Parameter("pair", "D2", "pair/kernel", *weights))
    found.append(Parameter("pair", "2", "pair/bias", f"{theirs}.bias", f"{original}/output_bias"))
    return found


def present(params, layers: int) -> list[tuple[Parameter, Any]]:
    """Those that a tree of our parameters has, with their leaves, in the order of `parameters`."""
    leaves = {
        jax.tree_util.keystr(path, simple=True, separator="/"): leaf
        for path, leaf in jax.tree.leaves_with_path(params)
    }
    table = parameters(layers)
    return [(item, leaves[item.path]) for item in table if item.path in leaves]


def named(part: str, table, ours: str, huggingface: str, google: str) -> list[Parameter]:
    """The parameters of a table, under a place of each spelling."""
    found = []
    for kind, axes, *last in table:
        places = zip((ours, huggingface, google), "/./", last, strict=True)
        a, b, c = (f"{place}{separator}{name}" for place, separator, name in places)
        if kind == ALONE:
            found.append(Parameter(part, axes, a, b, c))
        elif kind == NORM:
            found.append(Parameter(part, axes, f"{a}/scale", f"{b}.weight", f"{c}/gamma"))
            found.append(Parameter(part, axes, f"{a}/bias", f"{b}.bias", f"{c}/beta"))
        else:
            kernel = f"{a}/kernel", f"{b}.weight", f"{c}/kernel", ("huggingface",)
            found.append(Parameter(part, axes, *kernel))
            found.append(Parameter(part, axes[-1], f"{a}/bias", f"{b}.bias", f"{c}/bias"))
    return found


def shape(parameter: Parameter, model, vocabulary: int, format: str = "") -> tuple[int, ...]:
    """Its shape without padding, by the keys of config.model; as it lies in `format`, or here."""
    sizes = {"D": model["width"], "F": model["feed_forward"] or 4 * model["width"]}
    sizes |= {"V": vocabulary, "P": model["max_length"], "S": model["type_vocabulary"], "2": 2}
    found = tuple(sizes[axis] for axis in parameter.axes)
    return found[::-1] if format in parameter.transposed else found

"""What each parameter of BERT is called here, by Hugging Face and by the original program, and how it lies there."""

from typing import NamedTuple

FORMATS = ("huggingface", "google")

# Ours, Hugging Face's, the original's. Of a norm, `scale` and `bias`; of a dense layer, `kernel` and `bias`.
NORM, DENSE, ALONE = "norm", "dense", "alone"
EMBEDDINGS = (
    (ALONE, "embedder/words", "word_embeddings.weight", "word_embeddings"),
    (ALONE, "embedder/positions", "position_embeddings.weight", "position_embeddings"),
    (ALONE, "embedder/segments", "token_type_embeddings.weight", "token_type_embeddings"),
    (NORM, "embedder_norm", "LayerNorm", "LayerNorm"),
)
BLOCK = (
    (DENSE, "attention/query", "attention.self.query", "attention/self/query"),
    (DENSE, "attention/key", "attention.self.key", "attention/self/key"),
    (DENSE, "attention/value", "attention.self.value", "attention/self/value"),
    (DENSE, "attention/out", "attention.output.dense", "attention/output/dense"),
    (NORM, "attention_norm", "attention.output.LayerNorm", "attention/output/LayerNorm"),
    (DENSE, "feed_forward/up", "intermediate.dense", "intermediate/dense"),
    (DENSE, "feed_forward/down", "output.dense", "output/dense"),
    (NORM, "feed_forward_norm", "output.LayerNorm", "output/LayerNorm"),
)
POOLER = ((DENSE, "pooler", "pooler.dense", "pooler/dense"),)
TRANSFORM = (
    (DENSE, "dense", "transform.dense", "transform/dense"),
    (NORM, "norm", "transform.LayerNorm", "transform/LayerNorm"),
    (ALONE, "bias", "bias", "output_bias"),
)
PADDED = ("encoder/embedder/words", "mlm/bias")  # here, to a multiple of 128 rows


class Parameter(NamedTuple):
    """One parameter and its names; `part` is encoder, pooler, mlm or pair: a source has all of a part or nothing."""

    part: str
    path: str  # ours
    huggingface: str
    google: str
    transposed: tuple[str, ...] = ()  # the formats in which it lies transposed

    @property
    def padded(self) -> bool:
        return self.path in PADDED


def parameters(layers: int) -> list[Parameter]:
    """All parameters of a BERT of so many layers with its pooler and both heads."""
    found = named("encoder", EMBEDDINGS, "encoder", "bert.embeddings", "bert/embeddings")
    for number in range(layers):
        places = f"bert.encoder.layer.{number}", f"bert/encoder/layer_{number}"
        found += named("encoder", BLOCK, f"encoder/blocks_{number}", *places)
    found += named("pooler", POOLER, "encoder", "bert", "bert")
    found += named("mlm", TRANSFORM, "mlm", "cls.predictions", "cls/predictions")
    theirs, original = "cls.seq_relationship", "cls/seq_relationship"
    # The one matrix that the original keeps transposed, too.
    weights = f"{theirs}.weight", f"{original}/output_weights"
    found.append(Parameter("pair", "pair/kernel", *weights, FORMATS))
    found.append(Parameter("pair", "pair/bias", f"{theirs}.bias", f"{original}/output_bias"))
    return found


def named(part: str, table, ours: str, huggingface: str, google: str) -> list[Parameter]:
    """The parameters of a table, under a place of each spelling."""
    found = []
    for kind, *names in table:
        places = zip((ours, huggingface, google), ("/", ".", "/"), names, strict=True)
        a, b, c = (f"{place}{separator}{name}" for place, separator, name in places)
        if kind == ALONE:
            found.append(Parameter(part, a, b, c))
        elif kind == NORM:
            found.append(Parameter(part, f"{a}/scale", f"{b}.weight", f"{c}/gamma"))
            found.append(Parameter(part, f"{a}/bias", f"{b}.bias", f"{c}/beta"))
        else:
            kernel = f"{a}/kernel", f"{b}.weight", f"{c}/kernel"
            found.append(Parameter(part, *kernel, ("huggingface",)))
            found.append(Parameter(part, f"{a}/bias", f"{b}.bias", f"{c}/bias"))
    return found

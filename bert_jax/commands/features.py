"""`features`: writes vectors of the tokens or of the lines of a text file."""

from types import SimpleNamespace

import numpy as np

from bert_jax import cli
from bert_jax.convert import open_model
from bert_jax.data.sources import tables
from bert_jax.inference import features
from bert_jax.runs import jax_setup
from bert_jax.storage import atomic

POOL = "a vector for each line; none: for each token, and OUTPUT.ends.npy says where lines end"
OPTIONS = [
    cli.MODEL,
    cli.path(
        "--input",
        "file of texts: a line each, or `text` of the rows of a table (.jsonl)",
        **cli.REQUIRED,
    ),
    cli.option("--output", ".npy file to write", type=cli.to_output, **cli.REQUIRED),
    cli.option("--layers", "index or slice, as in Python; default: -1, the last", default="-1"),
    cli.option("--pool", POOL, choices=features.POOLS, default="none"),
    cli.AS_JSON,
]


def run(options, overrides) -> int:
    lines = [text for _, text in tables.read_texts(options.input)]
    model = open_model.open_model(options.model, ["dtype=float32", *overrides])
    jax_setup.start(model.config)
    vectors, ends, truncated = features.encode(model, lines, options.layers, options.pool)
    arrays = {}
    if options.pool == "none":
        arrays[options.output.with_suffix(".ends.npy")] = ends
    arrays[options.output] = vectors
    for path, array in arrays.items():
        with atomic.file(path) as file:
            # NumPy seeks in files of Python, and a pipe has no place.
            np.save(SimpleNamespace(write=file.write), array)
    values = {"shape": vectors.shape, "lines": len(lines), "cut": truncated}
    return cli.show(options, values, f"{options.output}: float32{[*vectors.shape]}")

"""Writes the vectors of words by a published ELMo:

    python examples/elmo/vectors.py options.json weights.hdf5 sentences.txt vectors.npz

A line of the text is a sentence, whose words are separated by blanks. The arrays of the file, line_0 and so on, are
float32[N + 1, W, 2 P]: the vectors of the words of a line, twice, and the states after each layer, from the left and
from the right. States do not go on from line to line. Needs h5py.
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

sys.path.append(str(Path(__file__).parents[1]))

from elmo import characters, published  # noqa: E402
from elmo.model import BiLM  # noqa: E402

SIZE = 50  # characters of a word, as published
STEP = 16  # lines are padded to multiples of so many words, each of which is compiled once


def load(options: Path | str, weights: Path | str) -> tuple[BiLM, dict]:
    """Returns the network of published files, and its parameters."""
    keys = published.read_options(options)
    float32 = jnp.dtype(jnp.float32)
    network = BiLM(unroll=20, dropout=0.0, dtype=float32, gradient_dtype=float32, **keys)
    return network, published.read_weights(weights, keys)


def batch_of(sentences: list[list[str]], length: int) -> dict:
    """Returns the arrays that the network reads, of sentences with at most `length` words and marks."""
    codes = [characters.encode_text(words, SIZE) for words in sentences]
    padded = [np.pad(each, [(0, length - len(each)), (0, 0)]) for each in codes]
    sizes = np.array([*map(len, codes)])
    is_real = np.arange(length) < sizes[:, None]
    return {"characters": np.stack(padded), "sequence_ids": is_real.astype(np.int32)}


def main(options: str, weights: str, source: str, output: str):
    network, params = load(options, weights)
    states = jax.jit(
        lambda params, batch: network.apply({"params": params}, batch, method="states")
    )
    vectors = {}
    for number, line in enumerate(Path(source).read_text(encoding="utf-8").split("\n")):
        words = line.split()
        length = STEP * -(-(len(words) + 2) // STEP)
        layers = states(params, batch_of([words], length))
        vectors[f"line_{number}"] = np.stack(layers)[:, 0, 1 : len(words) + 1]
    np.savez(output, **vectors)


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    main(*sys.argv[1:])

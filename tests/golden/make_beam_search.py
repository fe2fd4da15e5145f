"""Writes beam_search.npz: hypotheses of tf-models-official's beam search for the random models of kits/decoding.py.

PYTHONPATH=.:tests python tests/golden/make_beam_search.py    (needs tf-models-official, without its dependencies)

    lengths[C], alphas[C]                   the longest hypothesis and alpha of each case
    tokens[C, B, N, T], scores[C, B, N]     of the rows 0 to B - 1, each searched alone; unused hypotheses score -inf

In the last case some rows finish none. The original stops as soon as its finished hypotheses, of which there may be
fewer than N, surpass the open ones.
"""

import importlib.util
import json
import sys
from importlib.metadata import distribution, version
from pathlib import Path

import numpy as np
import tensorflow as tf
from kits import decoding as kit

FILE = Path(__file__).parent / "beam_search.npz"
CASES = ((8, 0.0), (8, 0.6), (8, 1.0), (3, 0.6))  # length, alpha
ROWS, BEAMS, LONGEST, VOCABULARY, BEGIN, END = 40, 4, 8, 11, 0, 1


def load():
    """Returns the one file as a module: the package itself imports what is not needed here."""
    sys.modules["tf_keras"] = tf.keras
    path = distribution("tf-models-official").locate_file(
        "official/nlp/modeling/ops/beam_search.py"
    )
    spec = importlib.util.spec_from_file_location("beam_search", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def search(module, row: int, length: int, alpha: float):
    """Returns the tokens int32[N, T] and the scores float32[N] of a row."""

    def logits(ids, index, cache):
        values = [kit.next_log_probs(row, prefix, VOCABULARY) for prefix in ids.numpy()]
        return tf.constant(np.float32(values)), cache

    tokens, scores = module.sequence_beam_search(
        symbols_to_logits_fn=logits,
        initial_ids=tf.constant([BEGIN]),
        initial_cache={},
        vocab_size=VOCABULARY,
        beam_size=BEAMS,
        alpha=alpha,
        max_decode_length=length,
        eos_id=END,
    )
    tokens = tokens.numpy()[0, :, 1:]
    tokens = np.pad(tokens, ((0, 0), (0, LONGEST - tokens.shape[1])))
    scores = scores.numpy()[0]
    return tokens, np.where(scores > -1e6, scores, -np.inf)


def make() -> dict:
    """Returns all arrays of the file."""
    module = load()
    results = [[search(module, row, *case) for row in range(ROWS)] for case in CASES]
    versions = {"tensorflow": tf.__version__, "tf-models-official": version("tf-models-official")}
    lengths, alphas = zip(*CASES, strict=True)
    return {
        "versions": np.array(json.dumps(versions)),
        "lengths": np.array(lengths),
        "alphas": np.array(alphas),
        "tokens": np.int32([[tokens for tokens, _ in rows] for rows in results]),
        "scores": np.float32([[scores for _, scores in rows] for rows in results]),
    }


if __name__ == "__main__":
    np.savez_compressed(FILE, **make())

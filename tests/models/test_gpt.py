"""GPT and GPT-2: initial weights, the vector of a text; and prompts that any causal network continues by its cache."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kits.small import VOCABULARY, small_config

from bert_jax.errors import BadInput
from bert_jax.layers import decoding
from bert_jax.models import gpt
from bert_jax.objectives import base

SIZES = np.array([3, 10, 24, 1])  # tokens of each row
NEW = 6  # tokens that continue it
MODELS = {
    "gpt2": ["model.name=gpt"],
    "gpt": ["model.name=gpt", "model.norm=post"],
    "rotary": ["model.name=gpt", "model.positions=rotary"],
    "bert": [],
    "roberta": ["model.name=roberta", "task.name=token_blocks"],
    "modernbert": ["model.name=modernbert", "model.window=8", "task.name=token_blocks"],
}


def make_batch(tokens, sizes) -> dict:
    """Returns rows of one sequence each, with padding at the end."""
    rows, length = tokens.shape
    positions = np.arange(length, dtype=np.int32)
    return {
        "tokens": tokens,
        "positions": np.broadcast_to(positions, tokens.shape),
        "segments": np.zeros_like(tokens),
        "sequence_ids": (positions < sizes[:, None]).astype(np.int32),
        "cls_positions": np.zeros((rows, 1), np.int32),
        "rows": np.arange(rows, dtype=np.int32),
    }


def make(*keys, length=32):
    """Returns an objective, its parameters, and random tokens int32[B, L]."""
    config = small_config("objective.name=causal_lm", "model.initializer=0.3", *keys)
    objective = base.make(config, VOCABULARY)
    draw = np.random.default_rng(0)
    tokens = draw.integers(5, VOCABULARY.size, (len(SIZES), length)).astype(np.int32)
    params = jax.jit(objective.init)(jax.random.key(0), make_batch(tokens, SIZES))
    return objective, params, tokens


@pytest.mark.parametrize("keys", MODELS.values(), ids=MODELS)
def test_prompts_are_continued_by_the_cache_as_without_it(keys, monkeypatch):
    """Prompts of different lengths in one batch, compared with the whole text computed anew for each token. The cache
    grows."""
    monkeypatch.setattr(decoding, "ROOM", 1)
    objective, params, tokens = make(*keys)
    call = jax.jit(objective.module.apply, static_argnames="method")
    params = {"params": params}
    first = tokens[np.arange(len(SIZES)), SIZES - 1]

    def step(tokens, caches):
        return call(params, tokens, caches, method="step")

    @jax.jit
    def start(batch):
        return objective.module.apply(params, batch, 24 + decoding.rooms(NEW)[0], method="start")

    caches = start(make_batch(tokens[:, :24], SIZES))
    decoded = decoding.greedy(step, caches, jnp.asarray(first), decoding.Stop(-1, NEW))
    for number in range(NEW):
        sizes = SIZES + number
        logits = call(params, make_batch(tokens, sizes), None)["lm_logits"]
        best = logits[np.arange(len(sizes)), sizes - 1].argmax(axis=-1)
        np.testing.assert_array_equal(decoded.tokens[:, 0, number], best)
        tokens[np.arange(len(sizes)), sizes] = best


@pytest.mark.parametrize("norm, position, out", [("pre", 0.5, 0.5), ("post", 1.0, 1.0)])
def test_initial_weights_have_the_published_deviations(norm, position, out):
    """Of GPT-2: half for positions, and here, with two layers, the root of 1/4 for outputs that are added."""
    config = small_config("model.name=gpt", "objective.name=causal_lm", f"model.norm={norm}")
    config.model.update(width=128, max_length=256, initializer=0.02)
    network = gpt.make(config, 1024)
    batch = make_batch(np.ones((4, 8), np.int32), SIZES)
    params = jax.jit(network.init)(jax.random.key(0), batch)["params"]
    embedder = params["embedder"]
    block = params["blocks_1"]
    deviations = {
        "words": (embedder["words"], 1.0),
        "positions": (embedder["positions"], position),
        "query": (block["attention"]["query"]["kernel"], 1.0),
        "up": (block["feed_forward"]["up"]["kernel"], 1.0),
        "out": (block["attention"]["out"]["kernel"], out),
        "down": (block["feed_forward"]["down"]["kernel"], out),
    }
    for name, (weights, share) in deviations.items():
        assert np.std(weights) == pytest.approx(0.02 * share, rel=0.03), name
    assert ("final_norm" in params) == (norm == "pre")


def test_rotary_positions_tell_places_by_their_distances():
    """In one layer: by more, the states themselves depend on the order."""
    keys = "model.name=gpt", "model.positions=rotary", "model.layers=1"
    objective, params, tokens = make(*keys)
    assert params["network"]["embedder"].keys() == {"words"}
    last = np.arange(len(SIZES)), SIZES - 1
    outputs = jax.jit(objective.outputs)

    def logits(batch):
        return np.asarray(outputs(params, batch)["lm_logits"])[last]

    batch = make_batch(tokens, SIZES)
    swapped = tokens.copy()
    swapped[:, :2] = tokens[:, 1::-1]
    difference = np.abs(logits(batch) - logits(make_batch(swapped, SIZES))).max(axis=-1)
    assert (difference[SIZES > 2] > 0.01).all()
    shifted = batch | {"positions": batch["positions"] + 7}
    np.testing.assert_allclose(logits(shifted), logits(batch), atol=1e-4)


def test_embeddings_have_dropout():
    """Of a tenth, in each row other elements; the others are scaled."""
    objective, params, tokens = make("model.name=gpt")
    network = objective.module.network
    batch = make_batch(np.repeat(tokens[:1], len(SIZES), axis=0), SIZES)
    keys = np.arange(len(SIZES), dtype=np.uint32)
    params = {"params": params["network"]}
    plain = np.asarray(network.apply(params, batch, method="embed"))
    dropped = np.asarray(network.apply(params, batch, keys, method="embed"))
    is_kept = dropped != 0
    assert is_kept.mean() == pytest.approx(0.9, abs=0.02)
    np.testing.assert_allclose(dropped[is_kept], plain[is_kept] / 0.9, rtol=1e-5)
    assert (is_kept[0] != is_kept[1]).any()


def test_attention_to_later_tokens_is_refused():
    keys = ["model.name=gpt", "task.name=classification", "objective.name=classifier"]
    assert small_config(*keys, "objective.causal=True").objective.causal
    with pytest.raises(BadInput, match="objective.causal=False"):
        small_config(*keys)
    with pytest.raises(BadInput, match="objective.name='mlm'"):
        small_config(*keys[:1])


def test_the_vector_of_a_text_is_that_of_its_last_token():
    network = gpt.make(small_config("model.name=gpt", "objective.name=causal_lm"), 200)
    states = np.random.default_rng(0).normal(size=(2, 6, 3)).astype(np.float32)
    ids = np.array([[1, 1, 2, 2, 2, 0], [1, 0, 0, 0, 0, 0]])
    batch = {"sequence_ids": ids, "cls_positions": np.array([[0, 2], [0, 0]])}
    vectors = network.summary(states, batch)
    np.testing.assert_allclose(vectors[0], states[0, [1, 4]], rtol=1e-6)
    np.testing.assert_allclose(vectors[1, 0], states[1, 0], rtol=1e-6)

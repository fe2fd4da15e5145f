"""The relative positions of Transformer-XL and XLNet: distances, and the terms of scores."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kits.permuted import KEY, LENGTH, ROWS
from xlnet import relative, transformer_xl

from bert_jax.layers.attention_spec import Spec
from bert_jax.layers.blocks import Inputs, LayerOptions

DRAW = np.random.default_rng(0)


def sinusoid(distance: int, width: int):
    """Returns float64[D], spelled out."""
    rates = [10_000 ** (-i / width) for i in range(0, width, 2)]
    return np.array([f(distance * rate) for f in (np.sin, np.cos) for rate in rates])


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("memory", range(10))
def test_the_shift_is_a_loop(monkeypatch, memory, is_causal):
    """And so is the gather, of consecutive positions."""
    monkeypatch.setattr(relative, "jnp", np)
    for length in range(1, 18):
        keys = memory + length
        least = 0 if is_causal else 1 - keys
        products = DRAW.normal(size=(2, 3, length, keys - least))
        shifted = relative.shift(products, keys)
        positions = np.arange(memory, keys)[None], np.arange(keys)[None]
        gathered = relative.gather(products, *positions)
        assert shifted.shape == gathered.shape == (2, 3, length, keys)
        for i in range(length):
            for j in range(keys):
                distance = memory + i - j
                if distance >= least:
                    expected = products[..., i, keys - 1 - distance]
                    np.testing.assert_array_equal(shifted[..., i, j], expected)
                    np.testing.assert_array_equal(gathered[..., i, j], expected)


def test_waves_are_those_of_each_distance():
    for is_causal, last in ((True, 0), (False, -4)):
        waves = relative.wave_table(5, 6, is_causal)
        expected = [sinusoid(distance, 6) for distance in range(4, last - 1, -1)]
        np.testing.assert_allclose(waves[0], expected, atol=1e-6)
    clamped = relative.wave_table(5, 6, False, clamp=2)[0]
    expected = [sinusoid(np.clip(distance, -2, 2), 6) for distance in range(4, -5, -1)]
    np.testing.assert_allclose(clamped, expected, atol=1e-6)


HEADS, SIZE = 2, 4
WIDTH = HEADS * SIZE
OPTIONS = LayerOptions("relu", 0.5, 0.5, 1e-5, jnp.float32, bias=False)
X = DRAW.normal(size=(ROWS, LENGTH, WIDTH)).astype(np.float32)
MEMORY = DRAW.normal(size=(ROWS, 4, WIDTH)).astype(np.float32)


def scores(params, x, source, positions):
    """Returns float64[B, H, L, M], by four terms for each pair. positions: of queries, and of keys."""

    def heads(name, states):
        return (states @ params[name]["kernel"]).reshape(*states.shape[:-1], HEADS, SIZE)

    q, k = heads("query", x), heads("key", source)
    u, v = params["content_bias"], params["distance_bias"]
    result = np.zeros((len(x), HEADS, x.shape[1], source.shape[1]))
    for i, query in enumerate(positions[0]):
        for j, key in enumerate(positions[1]):
            r = heads("distance", sinusoid(query - key, WIDTH))
            contents = (q[:, i] + u) * k[:, j]
            result[:, :, i, j] = (contents + (q[:, i] + v) * r).sum(-1)
    return SIZE**-0.5 * result


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("case", ["row", "memory", "packed"])
def test_scores_are_four_terms_of_each_pair(case, is_causal):
    ids = np.ones((ROWS, LENGTH), int)
    source, positions, places = X, (), np.arange(LENGTH)
    if case == "packed":
        ids[:, 5:] = 2
        places = np.concatenate([np.arange(5), np.arange(LENGTH - 5)])
        positions = (np.broadcast_to(places, ids.shape),) * 2
    key_ids = ids
    key_places = places
    if case == "memory":
        source = np.concatenate([MEMORY, X], axis=1)
        key_ids = np.ones(source.shape[:2], int)
        key_places = np.arange(source.shape[1])
        places = key_places[-LENGTH:]
    mask = transformer_xl.consecutive(jnp.asarray(ids), jnp.asarray(key_ids))
    waves = relative.wave_table(source.shape[1], WIDTH, is_causal)
    inputs = Inputs(mask, source, extra=relative.Distances(waves, positions))
    layer = relative.Attention(HEADS, Spec("xla", SIZE, causal=is_causal), OPTIONS)
    params = layer.init(KEY, X, inputs, None)
    options = {"capture_intermediates": lambda _, name: name == "probabilities"}
    _, captured = layer.apply(params, X, inputs, None, mutable=["intermediates"], **options)
    (probabilities,) = jax.tree.leaves(captured)
    exact = scores(jax.device_get(params["params"]), X, source, (places, key_places))
    seen = ids[:, :, None] == key_ids[:, None]
    if is_causal:
        seen &= places[:, None] >= key_places
    exact = np.where(seen[:, None], exact, -np.inf)
    exact = np.exp(exact - exact.max(-1, keepdims=True))
    np.testing.assert_allclose(probabilities, exact / exact.sum(-1, keepdims=True), atol=2e-6)


def test_a_checkpoint_changes_nothing():
    """Of `train.remat=attention`: parameters, results, and gradients are the same."""
    ids = jnp.ones((ROWS, LENGTH), jnp.int32)
    inputs = Inputs(transformer_xl.consecutive(ids, ids))
    inputs = inputs._replace(extra=relative.Distances(relative.wave_table(LENGTH, WIDTH, True)))
    layer = relative.Attention(HEADS, Spec("xla", SIZE, causal=True, remat=True), OPTIONS)
    params = layer.init(KEY, X, inputs, None)
    results = []
    for remat in (True, False):
        apply = layer.clone(spec=layer.spec._replace(remat=remat)).apply

        @jax.jit
        def compute(params, apply=apply):
            result, pull_back = jax.vjp(lambda params: apply(params, X, inputs, None)[0], params)
            return result, pull_back(result)

        results.append(compute(params))
    jax.tree.map(lambda *pair: np.testing.assert_allclose(*pair, rtol=1e-4, atol=1e-4), *results)
    assert all(abs(leaf).max() > 1e-5 for leaf in jax.tree.leaves(results[0]))

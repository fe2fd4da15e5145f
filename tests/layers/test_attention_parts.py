"""Attention whose parts a network replaces: scores, keys, values, positions; and what `capture` reads of it."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from external import disentangled, relative
from flax import linen as nn
from kits.small import ALBERT, MODERN, small_batch, small_objective, small_params

from bert_jax.errors import BadInput
from bert_jax.layers import attention, attention_xla, rotary
from bert_jax.layers.attention import Case
from bert_jax.layers.attention_spec import OWN_WEIGHTS, PAIRS, Mask, Spec, empty_cache
from bert_jax.layers.blocks import Attention, Block, FeedForward, Inputs, LayerOptions

HEADS, SIZE, LENGTH, ROWS = 2, 8, 10, 3
WIDTH = HEADS * SIZE
KEY = jax.random.key(0)
FAR = 3  # relative positions are clipped at this distance
OPTIONS = LayerOptions("gelu", 0.5, 0.5, 1e-5, jnp.float32, bias=True)
IDS = np.where(np.arange(LENGTH) < [[10], [7], [9]], 1, 0).astype(np.int32)
DRAW = np.random.default_rng(0)
X = DRAW.normal(size=(ROWS, LENGTH, WIDTH)).astype(np.float32)


class T5(Attention):
    """Scores that are not scaled, and a bias of positions that all layers share (arXiv:1910.10683)."""

    def bias(self, q, k, inputs):
        return inputs.extra


class Compressed(Attention):
    """Keys and values of the means of two tokens each (arXiv:1801.10198)."""

    def keys_and_values(self, states):
        return super().keys_and_values(states.reshape(len(states), -1, 2, WIDTH).mean(axis=2))


def softmax(x):
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def affine(params, x):
    return x @ params["kernel"] + params.get("bias", 0)


def project(params, x):
    """Returns [..., H, K] of x[..., D]."""
    return affine(params, x).reshape(*x.shape[:-1], HEADS, -1)


def expected(params, q_states, k_states, allowed, bias=0.0, scale=SIZE**-0.5, values=0.0):
    """Returns [B, L, D], computed with NumPy. bias: (q) -> [B, H, L, M] or an array; values: (p) -> [B, L, H, K]."""

    q = scale * project(params["query"], q_states)
    k, v = (project(params[name], k_states) for name in ("key", "value"))
    scores = np.einsum("blhk,bmhk->bhlm", q, k) + (bias(q) if callable(bias) else bias)
    p = softmax(np.where(allowed[:, None], scores, -1e9))
    mixed = np.einsum("bhlm,bmhk->blhk", p, v) + (values(p) if callable(values) else values)
    return affine(params["out"], mixed.reshape(*mixed.shape[:2], -1))


def assert_equal(layer, inputs, x=X, **how):
    """The layer computes what NumPy does, at real tokens, also in the checkpoint of `remat=attention`."""
    params = layer.clone(spec=layer.spec._replace(remat=True)).init(KEY, x, inputs, None)
    numbers = jax.tree.map(np.asarray, params["params"])
    how = {
        key: value(numbers) if key in ("bias", "values") else value for key, value in how.items()
    }
    exact = expected(numbers, x, **how)
    gradients = []
    for remat in (False, True):
        apply = layer.clone(spec=layer.spec._replace(remat=remat)).apply

        @jax.jit
        def compute(params, apply=apply):
            result, pull_back = jax.vjp(lambda params: apply(params, x, inputs, None)[0], params)
            return result, pull_back(result)

        result, gradient = compute(params)
        np.testing.assert_allclose(result[IDS > 0], exact[IDS > 0], atol=2e-5)
        gradients.append(gradient)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-4), *gradients)
    assert all(abs(leaf).max() > 1e-5 for leaf in jax.tree.leaves(gradients[0]))


ALLOWED = (IDS[:, :, None] == IDS[:, None]) & (IDS[:, None] > 0)
BETWEEN = np.clip(np.arange(LENGTH) - np.arange(LENGTH)[:, None], -FAR, FAR) + FAR


def test_relative_keys_and_values():
    layer = relative.Attention(HEADS, Spec("xla", SIZE), OPTIONS, reach=FAR)

    def bias(params):
        return lambda q: np.einsum("blhk,lmk->bhlm", q, params["relative_keys"][BETWEEN])

    def values(params):
        return lambda p: np.einsum("bhlm,lmk->blhk", p, params["relative_values"][BETWEEN])

    how = dict(k_states=X, allowed=ALLOWED, bias=bias, values=values)
    assert_equal(layer, Inputs(Mask(IDS)), **how)


def test_relative_positions_of_a_cache_are_those_of_a_row():
    layer = relative.Attention(HEADS, Spec("xla", SIZE, causal=True), OPTIONS, reach=FAR)
    inputs = Inputs(Mask(np.ones_like(IDS)))
    params = layer.init(jax.random.key(0), X, inputs, None)
    whole, _ = layer.apply(params, X, inputs, None)
    cache = empty_cache(ROWS, LENGTH, HEADS, layer.spec, jnp.float32)
    for number in range(LENGTH):
        x = X[:, number : number + 1]
        result, cache = layer.apply(params, x, Inputs(cache.mask(1), cache=cache), None)
        np.testing.assert_allclose(result[:, 0], whole[:, number], atol=2e-5)


def test_a_bias_that_layers_share_and_scores_without_a_scale():
    """And heads that are together narrower than the states."""
    bias = DRAW.normal(size=(1, HEADS, LENGTH, LENGTH)).astype(np.float32)
    layer = T5(HEADS, Spec("xla", SIZE // 2), OPTIONS, scale=1.0, width=WIDTH)
    how = dict(k_states=X, allowed=ALLOWED, bias=lambda params: bias, scale=1.0)
    assert_equal(layer, Inputs(Mask(IDS), extra=bias), **how)


def test_keys_of_another_length_have_a_mask_of_their_own():
    key_ids = IDS[:, ::2]
    layer = Compressed(HEADS, Spec("xla", SIZE), OPTIONS)
    means = X.reshape(ROWS, -1, 2, WIDTH).mean(axis=2)
    allowed = (IDS[:, :, None] == key_ids[:, None]) & (key_ids[:, None] > 0)
    assert_equal(layer, Inputs(Mask(IDS, key_ids)), k_states=means, allowed=allowed)


def test_queries_and_keys_of_positions():
    """Those of DeBERTa (tests/external), by the layers of contents."""
    numbers = disentangled.relative_positions(LENGTH, buckets=6, longest=LENGTH)
    table = DRAW.normal(size=(2 * 6, WIDTH)).astype(np.float32)
    scale = (3 * SIZE) ** -0.5

    def bias(params):
        keys = project(params["key"], table)[numbers]
        queries = scale * project(params["query"], table)[numbers]
        k = project(params["key"], X)
        to_content = np.einsum("lmhk,bmhk->bhlm", queries, k)
        return lambda q: np.einsum("blhk,lmhk->bhlm", q, keys) + to_content

    layer = disentangled.Attention(HEADS, Spec("xla", SIZE), OPTIONS, scale)
    inputs = Inputs(Mask(IDS), extra=(jnp.asarray(numbers), table))
    assert_equal(layer, inputs, k_states=X, allowed=ALLOWED, bias=bias, scale=scale)


def test_a_bias_is_not_rounded_to_the_16_bits_of_queries():
    """Near 100, numbers of bfloat16 are half a unit apart."""
    bias = 100 + 0.1 * np.arange(SIZE, dtype=np.float32)[None, None, None]
    q = jnp.zeros((1, SIZE, 1, SIZE), jnp.bfloat16)
    mask = Mask(np.ones((1, SIZE), np.int32))
    p = attention_xla.probabilities_of(Spec("xla", SIZE), mask, q, q, bias)
    np.testing.assert_allclose(p, np.broadcast_to(softmax(bias), p.shape), atol=1e-6)


class Weighed(Attention):
    """Computes what the base class does, by `probabilities` and `mix`."""

    def mix(self, p, v, inputs):
        return super().mix(p, v, inputs)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("fields", [{"causal": True}, {"window": 8}])
def test_a_layer_that_weighs_by_itself_is_like_others(fields, dtype):
    """With dropout, rotary positions, and a window."""
    spec = Spec("xla", SIZE, dropout=0.1, **fields)
    mask = Mask(IDS, angles=rotary.angles(jnp.arange(LENGTH)[None].repeat(ROWS, 0), SIZE, 100.0))
    keys = np.arange(ROWS, dtype=np.uint32)
    x = X.astype(dtype)

    @partial(jax.jit, static_argnums=0)
    def compute(kind, params):
        def total(params):
            y, _ = kind(HEADS, spec, OPTIONS).apply(params, x, Inputs(mask), keys)
            y = y.astype(jnp.float32) * (IDS > 0)[..., None]
            return jnp.square(y).sum(), y

        return jax.tree.map(lambda y: y / abs(y).max(), jax.grad(total, has_aux=True)(params))

    assert (Attention.needs(), Weighed.needs()) == ((), (OWN_WEIGHTS,))
    params = Attention(HEADS, spec, OPTIONS).init(KEY, X, Inputs(mask), None)
    tolerance = 1e-4 if dtype == jnp.float32 else 0.03
    close = partial(np.testing.assert_allclose, rtol=tolerance, atol=tolerance)
    jax.tree.map(close, compute(Weighed, params), compute(Attention, params))


@pytest.mark.parametrize(("norm", "is_normal"), [("pre", False), ("pre", True), ("post", False)])
def test_a_memory_in_front_is_a_long_causal_row(norm, is_normal):
    """The states in front are a part of `source`, normalized like x. Queries and keys have rotary positions."""
    block, params = make_block(norm, is_normal)
    ones = np.ones_like(IDS)
    places = np.broadcast_to(np.arange(LENGTH), ones.shape)
    angles = rotary.angles(places, SIZE, 100.0)
    whole, _ = block.apply(params, X, Inputs(Mask(ones, angles=angles)), None)
    x = X[:, 4:]
    mask = Mask(
        ones[:, 4:],
        ones,
        angles=tuple(part[:, 4:] for part in angles),
        key_angles=angles,
        positions=(places[:, 4:], places),
    )
    result, _ = block.apply(params, x, Inputs(mask, source=X), None)
    np.testing.assert_allclose(result, whole[:, 4:], atol=2e-6)


def make_block(norm: str, is_normal: bool):
    """Returns a causal block and its parameters."""
    parts = (
        Attention(HEADS, Spec("xla", SIZE, causal=True), OPTIONS),
        FeedForward(8, OPTIONS, False),
    )
    block = Block(*parts, nn.LayerNorm, norm=norm, is_normal=is_normal)
    return block, block.init(jax.random.key(0), X, Inputs(Mask(IDS)), None)


@pytest.mark.parametrize("needs", [OWN_WEIGHTS, PAIRS])
def test_kernels_are_not_chosen_for_what_they_lack(needs):
    spec = Spec("auto", 64, sequences=1)
    case = Case("TPU v5 lite", ("fused", "splash"), 512, 4, "bfloat16")
    assert attention.choose(spec, case) == "fused"
    assert attention.choose(spec._replace(needs=(needs,)), case) == "xla"
    with pytest.raises(BadInput, match=needs):
        attention.choose(spec._replace(implementation="fused", needs=(needs,)), case)


def is_probabilities(module, name: str) -> bool:
    return name == "probabilities"


SHARED = "model.name=external.universal", "model.layers=3"


@pytest.mark.parametrize(
    ("keys", "passes"),
    [((), 2), (ALBERT, 3), (MODERN, 4), (SHARED, 3)],
    ids=["bert", "albert", "modernbert", "shared"],
)
def test_capture_reads_probabilities_of_a_differentiated_loss(keys, passes):
    """They sum to one, nothing else changes, and a loss of them has the gradients of `remat=none` with any other."""
    batch = small_batch(rows=2)
    results = []
    for remat in ("none", "attention", "full"):
        objective = small_objective(*keys, "task.pair_task=none", f"train.remat={remat}")
        params = small_params(objective)

        def total(params, objective=objective):
            outputs, kept = objective.capture(params, batch, is_probabilities)
            return sum((p**2).sum() for p in kept.values()), (outputs, kept)

        (_, (outputs, kept)), gradients = jax.jit(jax.value_and_grad(total, has_aux=True))(params)
        assert len(kept) == passes and all("attention/probabilities" in path for path in kept)
        results.append((gradients, kept))
    for p in kept.values():
        np.testing.assert_allclose(p.sum(-1)[:, 0][batch["sequence_ids"] > 0], 1, atol=1e-5)
    first, *others = kept.values()
    assert all(abs(first - p).max() > 1e-4 for p in others)
    exact = jax.jit(objective.outputs)(params, batch)
    np.testing.assert_allclose(outputs["mlm_logits"], exact["mlm_logits"], atol=1e-5)
    assert abs(gradients["network"]["blocks_0"]["attention"]["query"]["kernel"]).max() > 0
    for other in results[1:]:
        jax.tree.map(partial(np.testing.assert_allclose, atol=1e-4), other, results[0])


@pytest.mark.parametrize("keys", [(), MODERN], ids=["bert", "modernbert"])
def test_captured_probabilities_are_those_of_the_output(keys):
    """With rotary positions and windows, too: values weighted by them are what the layer's last product reads."""
    objective = small_objective(*keys, "task.pair_task=none", "model.initializer=0.3")
    batch = small_batch(rows=2)
    params = small_params(objective)
    names = "probabilities", "keys_and_values", "__call__"

    def is_chosen(module, name):
        return isinstance(module, Attention) and name in names

    kept = jax.jit(lambda params: objective.capture(params, batch, is_chosen)[1])(params)
    paths = [path for path in kept if "/probabilities/" in path]
    assert len(paths) == len([name for name in params["network"] if name.startswith("blocks_")])
    for path in paths:
        layer, _, _ = path.partition("/probabilities/")
        values = kept[f"{layer}/keys_and_values/[0]/[1]"]
        mixed = np.einsum("bhlm,bmhk->blhk", kept[path], values)
        out = params["network"][layer.split("/")[1]]["attention"]["out"]
        expected = mixed.reshape(*mixed.shape[:2], -1) @ out["kernel"] + out.get("bias", 0)
        difference = abs(kept[f"{layer}/__call__/[0]/[0]"] - expected)
        assert difference[batch["sequence_ids"] > 0].max() < 2e-5


@pytest.mark.parametrize("remat", [False, True])
def test_probabilities_of_a_layer_that_weighs_by_itself_are_captured(remat):
    layer = relative.Attention(HEADS, Spec("xla", SIZE, remat=remat), OPTIONS, reach=FAR)
    inputs = Inputs(Mask(IDS))
    params = layer.init(jax.random.key(0), X, inputs, None)
    options = dict(capture_intermediates=is_probabilities, mutable=["intermediates"])
    _, kept = layer.apply(params, X, inputs, None, **options)
    (p,) = jax.tree.leaves(kept)
    np.testing.assert_allclose(p.sum(-1)[:, 0][IDS > 0], 1, atol=1e-5)

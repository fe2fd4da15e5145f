"""Blocks with a cache, and with a second sequence, equal blocks without."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.layers import heads, rotary
from bert_jax.layers.attention_spec import Mask, Spec, empty_cache
from bert_jax.layers.blocks import Attention, Block, FeedForward, Inputs, LayerOptions
from bert_jax.layers.norm import LayerNorm

HEADS, SIZE, LENGTH = 2, 8, 12
WIDTH = HEADS * SIZE
OPTIONS = LayerOptions("gelu", 0.2, 0.2, 1e-5, jnp.float32, bias=True)
DRAW = np.random.default_rng(0)


def make_block(norm: str = "pre", **fields):
    spec = Spec("xla", SIZE, **fields)
    parts = Attention(HEADS, spec, OPTIONS), FeedForward(24, OPTIONS, gated=False)
    context = Attention(HEADS, spec.to_context(), OPTIONS)
    return Block(*parts, partial(LayerNorm, 1e-5), norm=norm, context=context), spec


def draw(*shape):
    return DRAW.normal(size=shape).astype(np.float32)


def positions_of(ids):
    """Returns the positions of tokens in their packed sequences."""
    starts = np.argmax(ids[:, :, None] == ids[:, None], axis=2)
    return np.arange(ids.shape[1]) - starts


@pytest.mark.parametrize("base", [0, 100.0])
@pytest.mark.parametrize("prompt", [0, 5])
def test_cached_attention_equals_causal_attention(base, prompt):
    """Tokens one by one, behind prompts of different lengths that are read at once; rotary positions or none."""
    block, spec = make_block(causal=True, window=8)
    x = draw(2, LENGTH, WIDTH)
    ids = np.ones((2, LENGTH), np.int32)

    def angles(positions):
        return rotary.angles(positions, SIZE, base) if base else ()

    positions = np.broadcast_to(np.arange(LENGTH), (2, LENGTH))
    mask = Mask(ids, angles=angles(positions))
    params = block.init(jax.random.key(0), x, Inputs(mask), None)
    expected, _ = block.apply(params, x, Inputs(mask), None)

    @jax.jit
    def step(tokens, cache):
        mask = cache.mask(tokens.shape[1])
        mask = mask._replace(angles=angles(mask.positions[0]))
        return block.apply(params, tokens, Inputs(mask, cache=cache), None)

    cache = empty_cache(2, LENGTH, HEADS, spec, jnp.float32)
    lengths = np.array([prompt, max(0, prompt - 2)])  # the second prompt ends with padding
    if prompt:
        _, cache = step(x[:, :prompt], cache)
        cache = cache._replace(position=jnp.asarray(lengths))
    for number in range(LENGTH - prompt):
        tokens = np.stack([x[row, lengths[row] + number] for row in range(2)])[:, None]
        outputs, cache = step(tokens, cache)
        for row in range(2):
            actual = outputs[row, 0]
            np.testing.assert_allclose(actual, expected[row, lengths[row] + number], atol=1e-5)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_packed_pairs_equal_separate_rows(norm):
    """A row has places for two sequences on both sides, which see only their own, also in the second sequence."""
    block, _ = make_block(norm)
    sizes = [(5, 3), (4, 6)]  # of queries and of the second sequence
    pairs = [(draw(1, size, WIDTH), draw(1, other, WIDTH)) for size, other in sizes]
    ids = [np.repeat([1, 2, 0], [*part, 12 - sum(part)])[None] for part in zip(*sizes, strict=True)]
    rows = [
        np.concatenate([*part, draw(1, 12, WIDTH)], axis=1)[:, :12]
        for part in zip(*pairs, strict=True)
    ]

    def compute(params, x, states, query_ids, key_ids):
        context = Inputs(Mask(query_ids, key_ids), states)
        return block.apply(params, x, Inputs(Mask(query_ids), context=context), None)[0]

    context = Inputs(Mask(*ids), rows[1])
    inputs = Inputs(Mask(ids[0]), context=context)
    params = block.init(jax.random.key(0), rows[0], inputs, None)
    assert {"context", "context_norm"} <= set(params["params"])
    packed = compute(params, *rows, *ids)
    start = 0
    for x, states in pairs:
        ones = np.ones(x.shape[:2], np.int32), np.ones(states.shape[:2], np.int32)
        alone = compute(params, x, states, *ones)
        stop = start + x.shape[1]
        np.testing.assert_allclose(packed[:, start:stop], alone, atol=1e-6)
        start = stop
        memory = block.apply(params, states, method="memorize")
        np.testing.assert_array_equal(compute(params, x, memory, *ones), alone)


def test_a_mask_of_pairs_leaves_out_what_other_ids_do():
    """Gradients and windows are as with ids; a mask of all pairs changes nothing."""
    block, _ = make_block(window=4)
    x, draws = draw(2, 2, LENGTH, WIDTH)
    ids = np.ones((2, LENGTH), np.int32)
    groups = DRAW.integers(1, 3, ids.shape)
    pairs = groups[:, :, None] == groups[:, None]
    params = block.init(jax.random.key(0), x, Inputs(Mask(ids)), None)

    def total(params, mask):
        return (block.apply(params, x, Inputs(mask), None)[0] * draws).sum()

    learn = jax.jit(jax.value_and_grad(total))
    close = partial(np.testing.assert_allclose, atol=1e-4)
    by_pairs = learn(params, Mask(ids, pairs=pairs))
    jax.tree.map(close, by_pairs, learn(params, Mask(groups)))
    everything = learn(params, Mask(ids, pairs=np.ones_like(pairs)))
    jax.tree.map(close, everything, learn(params, Mask(ids)))
    assert abs(float(by_pairs[0] - everything[0])) > 1e-2


def test_what_a_cache_does_not_have_yet_is_not_seen():
    """Without causal attention, tokens that are read at once see each other, and no empty places."""
    block, spec = make_block()
    x = draw(2, 5, WIDTH)
    inputs = Inputs(Mask(np.ones((2, 5), np.int32)))
    params = block.init(jax.random.key(0), x, inputs, None)
    expected, _ = block.apply(params, x, inputs, None)
    cache = empty_cache(2, LENGTH, HEADS, spec, jnp.float32)
    actual, _ = block.apply(params, x, Inputs(cache.mask(5), cache=cache), None)
    np.testing.assert_allclose(actual, expected, atol=1e-6)


@pytest.mark.parametrize("width, is_plain", [(0, False), (6, False), (0, True)])
def test_the_head_has_the_width_of_the_word_embeddings(width, is_plain):
    """Factorized embeddings are narrower than the states; plain logits have no parameters."""
    parts = dict(has_dense=not is_plain, has_bias=not is_plain)
    head = heads.LMHead(heads.Head(100, WIDTH, OPTIONS, width, **parts))
    table = draw(128, width or WIDTH)

    def logits(x, bias=0.0):
        return x @ table.T + bias

    x = draw(2, LENGTH, WIDTH)
    result, variables = head.init_with_output(jax.random.key(0), x, logits)
    assert result.shape == (2, LENGTH, 128)
    if is_plain:
        assert not variables
        np.testing.assert_array_equal(result, logits(x))
    else:
        assert variables["params"]["dense"]["kernel"].shape == (WIDTH, width or WIDTH)

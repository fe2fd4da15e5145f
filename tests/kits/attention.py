"""Inputs of attention, its implementations in a form that runs on any device, and comparisons of their results."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax import prng
from bert_jax.layers import attention, attention_splash, attention_xla, rotary
from bert_jax.layers.attention_spec import Mask, Spec

HEADS, SIZE = 4, 16


def interpreted(q, k, v, ids, **options):
    spec = Spec("splash", q.shape[-1], **options)
    return attention_splash.attend(spec, q, k, v, ids, interpret=True)


DROPOUT = 0.1
TPU = ("TPU v5 lite", ("fused", "splash"))
GPU = ("NVIDIA H100 80GB HBM3", ("cudnn",))
SETTINGS = ("model.max_length=128", "model.attention_dropout=0.0", "model.dropout=0.0")


@cache
def make_rows(rows: int, length: int, heads: int = HEADS):
    """Returns (q, k, v, weights, sequence_ids) of rows: full, padded, packed, packed and padded, all padding."""
    draw = np.random.default_rng(length)
    arrays = [draw.normal(size=(rows, length, heads, SIZE)).astype(np.float32) for _ in range(4)]
    arrays[0] *= SIZE**-0.5
    ids = np.zeros((rows, length), np.int32)
    cuts = [[length], [length // 3], [40, length], [7, 90, length - 5], []]
    for row in range(rows):
        for number, stop in reversed([*enumerate(cuts[row % len(cuts)], 1)]):
            ids[row, :stop] = number
    arrays[3] *= (ids > 0)[..., None, None]
    return *arrays, ids


def compute(function, arrays, dtype=jnp.float32):
    """Returns the output at real tokens, and the gradients of its weighted sum by queries, keys and values."""
    *vectors, weights, ids = arrays

    def total(*vectors):
        result = function(*(x.astype(dtype) for x in vectors), ids).astype(jnp.float32)
        return (result * weights).sum(), jnp.where((ids > 0)[..., None, None], result, 0)

    gradients = jax.value_and_grad(total, argnums=(0, 1, 2), has_aux=True)
    (_, result), gradients = jax.jit(gradients)(*vectors)
    return result, *gradients


def plain(q, k, v, ids, rate=0.0, causal=False, window=0, block=None, key_ids=None):
    """block: of queries, with a window; None: all."""
    block = ids.shape[1] if block is None else block
    spec = Spec("xla", q.shape[-1], window, causal, rate)
    return attention_xla.attend(spec, Mask(ids, key_ids), q, k, v, keys_of(ids), block)


def fused(q, k, v, ids, angles=(), key_ids=None, **options):
    """In the emulated kernel. Options: `causal`, `window`, and `rate` for dropout."""
    spec = Spec("fused", q.shape[-1], dropout=options.pop("rate", 0.0), **options)
    mask = Mask(ids, key_ids, angles)
    return attention.fused(spec, mask, q, k, v, keys_of(ids), interpret=True)


def to_context(function):
    """Returns attention(q, k, v, ids, ...) to a second sequence: its sequences come in the opposite order."""

    def attend(q, k, v, ids, **options):
        return function(q, k, v, ids, key_ids=ids[:, ::-1], **options)

    return attend


def rotated(function):
    """Returns attention(q, k, v, ids, ...) with rotary positions: `fused` rotates, or else this does."""

    def attend(q, k, v, ids, **options):
        positions = np.broadcast_to(np.arange(ids.shape[1]), ids.shape)
        angles = rotary.angles(positions, SIZE, 100.0)
        if function is fused:
            return fused(q, k, v, ids, angles, **options)
        q, k = (rotary.rotate(x, *angles) for x in (q, k))
        return function(q, k, v, ids, **options)

    return attend


def keys_of(ids):
    """Returns dropout keys, uint32[B]."""
    return prng.mix(np.arange(len(ids), dtype=np.uint32) + np.uint32(9))


def assert_close(actual, expected, tolerance):
    for left, right in zip(actual, expected, strict=True):
        assert np.isfinite(left).all()
        np.testing.assert_allclose(left, right, atol=tolerance * np.abs(right).max(), rtol=0)


def assert_aligned(actual, exact, angle: float, ratio: float):
    """Asserts that 1 - cosine is at most `angle`, and that the norms differ by at most the share `ratio`."""
    actual, exact = (np.float64(x).ravel() for x in (actual, exact))
    norms = np.linalg.norm(actual), np.linalg.norm(exact)
    assert 1 - actual @ exact / norms[0] / norms[1] <= angle
    assert abs(norms[0] / norms[1] - 1) <= ratio


def on_tpu(monkeypatch):
    """Makes this process choose attention kernels like a TPU, and emulate them."""
    monkeypatch.setattr(attention, "device_and_kernels", lambda mesh=None: TPU)
    for name in ("fused", "splash"):
        emulated = partial(attention.IMPLEMENTATIONS[name], interpret=True)
        monkeypatch.setitem(attention.IMPLEMENTATIONS, name, emulated)


def attend(name, ids, dropout=0.1, angles=(), **options):
    """Returns attend(q, k, v, keys) of rows. options: of the Spec."""
    options = dict(sequences=1, remat=True) | options
    mask = Mask(ids, angles=angles)

    def attend_rows(q, k, v, keys):
        spec = Spec(name, q.shape[-1], dropout=dropout, **options)
        return attention.attend(spec, mask, q, k, v, keys)

    return attend_rows

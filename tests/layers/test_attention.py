"""Attention: the implementations agree, and each compiles for its devices."""

import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kits import attention as kit
from kits import small
from kits.attention import DROPOUT, compute, fused, interpreted, make_rows, plain
from kits.slices import compiling, devices, needs_libtpu
from kits.small import mesh_of, small_objective, small_params

from bert_jax.layers import (
    attention,
    attention_splash,
    attention_xla,
    rotary,
)
from bert_jax.parallel import constraints
from bert_jax.parallel import mesh as meshes
from bert_jax.planning import custom_calls, hlo

CASES = [(0, 0, 0), (1, 0, 0), (0, 30, 15), (1, 32, 8), (0, 12, 1)]


@pytest.mark.parametrize(("causal", "window", "block"), CASES)
@pytest.mark.parametrize("by", [attention_xla.attention_on_cpu, attention_xla.masked_softmax])
def test_tokens_attend_to_real_tokens_of_their_own_sequence(monkeypatch, by, causal, window, block):
    """Compared with a softmax over only these, token by token; if attention is causal, over those up to the token, and
    with a window, over near ones, in blocks of any size."""
    monkeypatch.setattr(attention_xla, "masked_attention", by)
    q, k, v, _, ids = make_rows(5, 128)
    actual = plain(q, k, v, ids, causal=causal, window=window, block=block)
    for row, position in [(0, 127), (1, 3), (2, 39), (2, 40), (3, 100)]:
        seen = ids[row] == ids[row, position]
        seen[position + 1 :] &= not causal
        seen &= np.abs(np.arange(128) - position) <= (window // 2 or 128)
        scores = np.einsum("hk,mhk->hm", q[row, position], k[row, seen])
        probabilities = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
        expected = np.einsum("hm,mhk->hk", probabilities, v[row, seen])
        np.testing.assert_allclose(actual[row, position], expected, rtol=1e-5, atol=1e-6)


dropping = partial(fused, rate=DROPOUT)
dropping_plain = partial(plain, rate=DROPOUT)
causal_plain = partial(plain, causal=True)
full = partial(pytest.param, marks=pytest.mark.full)
near = dict(window=130)  # splash visits the blocks of 256 beside the diagonal
rotated = kit.rotated(fused)
rotated_plain = kit.rotated(plain)
causal_rotated = partial(rotated_plain, causal=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "reference", "rows", "length", "heads"),
    [
        (interpreted, plain, 5, 128, 4),
        (interpreted, plain, 5, 640, 4),  # in five blocks
        (fused, plain, 5, 384, 8),
        full(partial(interpreted, causal=True), causal_plain, 5, 640, 4),
        full(partial(fused, causal=True), causal_plain, 5, 128, 8),
        full(partial(interpreted, **near), partial(plain, **near, block=65), 5, 1024, 1),
        (partial(interpreted, **near, causal=True), partial(causal_plain, **near), 5, 640, 1),
        (partial(fused, causal=True), causal_plain, 4, 640, 8),  # in five blocks of queries
        (kit.to_context(dropping), kit.to_context(dropping_plain), 4, 128, 8),
        full(partial(rotated, window=128), partial(rotated_plain, window=128), 3, 384, 8),
        (partial(rotated, **near, causal=True), partial(causal_rotated, **near), 2, 512, 8),
        full(partial(rotated, causal=True), causal_rotated, 2, 128, 8),
        # Several rows per kernel step.
        full(dropping, dropping_plain, 8, 128, 16),
    ],
)
def test_kernels_equal_xla(kernel, reference, rows, length, heads):
    """Outputs and gradients, with the same dropout."""
    arrays = make_rows(rows, length, heads)
    kit.assert_close(compute(kernel, arrays), compute(reference, arrays), 1e-5)


def test_cpus_compute_a_batch_in_four_parts(monkeypatch):
    """With the narrower factor of the gradients on the left; a mesh in one part, and TPUs in the plain order. All have
    the same dropout."""
    *vectors, _, ids = arrays = make_rows(8, 128)
    learn = jax.grad(lambda *vectors: dropping_plain(*vectors, ids).sum(), argnums=(0, 1, 2))

    def products():
        program = jax.jit(learn).lower(*vectors).compile().as_text()
        return re.findall(r"\[([\d,]+)\]\S* dot\(.*lhs_contracting_dims=\{2\}", program)

    assert products() == 2 * attention_xla.PARTS * ["2,4,16,128"]
    with jax.set_mesh(mesh_of((2, 1, 1))):
        assert products() == 2 * ["8,4,16,128"]
    on_tpu = jax.jit(learn).trace(*vectors).lower(lowering_platforms=("tpu",)).as_text()
    assert "stablehlo.dot_general" in on_tpu and "optimization_barrier" not in on_tpu
    on_cpu = compute(dropping_plain, arrays)
    monkeypatch.setattr(attention_xla, "masked_attention", attention_xla.masked_softmax)
    kit.assert_close(on_cpu, compute(dropping_plain, arrays), 1e-5)


@pytest.mark.parametrize("function", [plain, interpreted, dropping])
def test_bfloat16_is_close_to_float32(function):
    """Outputs and gradients. Measured: 1 - cosine is at most 1.5e-5; norms differ by 0.16 % with dropout, because
    1 / 0.9 is rounded, and by less than 0.01 % without."""
    arrays = make_rows(5, 256, heads=8)
    exact = compute(dropping_plain if function is dropping else plain, arrays)
    actual = compute(function, arrays, jnp.bfloat16)
    for a, b in zip(actual, exact, strict=True):
        kit.assert_aligned(a, b, 2e-5, 2e-3 if function is dropping else 2e-4)


@pytest.mark.parametrize(
    ("single", "sharded", "shape", "rows", "heads"),
    [
        (interpreted, constraints.by_heads(interpreted), (2, 2, 2), 8, kit.HEADS),
        (interpreted, constraints.by_heads(interpreted), (4, 2, 1), 3, kit.HEADS),
        # The dropout mask depends on the index of a head among all heads.
        pytest.param(dropping, dropping, (2, 2, 2), 8, 16, marks=pytest.mark.full),
    ],
)
def test_kernels_on_a_mesh_equal_one_device(single, sharded, shape, rows, heads):
    """Each device computes its rows and heads; if the rows do not divide, every device computes all of them."""
    arrays = make_rows(rows, 128, heads)
    expected = compute(single, arrays)
    with jax.set_mesh(mesh_of(shape)):
        actual = compute(sharded, arrays)
    kit.assert_close(actual, expected, 1e-6)
    parts = {part.data.shape for part in actual[0].addressable_shards}
    assert parts == {(8 // 4, 128, heads // 2, kit.SIZE)} or shape != (2, 2, 2)


FUSED = ("model.max_length=128", "model.width=128", "model.heads=8")


@pytest.mark.slow
@pytest.mark.parametrize(("kernel", "settings"), [("splash", kit.SETTINGS), full("fused", FUSED)])
def test_a_model_has_the_same_gradients_by_a_kernel(monkeypatch, kernel, settings):
    """Packed rows, one of them padding only: what padding attends to changes neither loss nor gradients."""
    kit.on_tpu(monkeypatch)
    rows = small.synthetic(4, 128, 10, 200, sequences=3)
    rows["sequence_ids"][1, 100:] = 0
    rows["sequence_ids"][2] = 0
    inside = np.take_along_axis(rows["sequence_ids"], rows["masked_positions"], 1) > 0
    rows["masked_weights"] *= inside
    rows["pair_weights"][2] = 0

    def learn(name):
        objective = small_objective(*settings, f"model.attention={name}")
        params, loss = small_params(objective), small.loss_of(objective)
        program = jax.make_jaxpr(loss)(params, rows)
        assert ("pallas_call" in str(program)) == (name == kernel)
        value, gradient = jax.jit(jax.value_and_grad(loss))(params, rows)
        return value, np.concatenate([leaf.ravel() for leaf in jax.tree.leaves(gradient)])

    kit.assert_close(learn(kernel), learn("xla"), 1e-5)


@needs_libtpu
@pytest.mark.parametrize(
    ("name", "length", "shape", "dtype", "size", "base", "options"),
    [
        ("fused", 128, (2, 1, 2), "bf16", 64, 0, {}),
        ("fused", 384, (2, 1, 2), "bf16", 64, 1e4, dict(window=128)),
        full("fused", 8192, (1, 1, 1), "bf16", 64, 1e4, dict(window=128)),
        full("fused", 1024, (1, 1, 1), "bf16", 128, 1e4, dict(causal=True)),
        full("fused", 512, (2, 1, 2), "f32", 64, 0, {}),
        full("splash", 512, (1, 1, 1), "bf16", 128, 0, dict(causal=True)),
        full("splash", 512, (2, 1, 2), "f32", 64, 0, {}),
        full("splash", 1024, (1, 1, 1), "bf16", 64, 0, dict(window=128)),
    ],
)
def test_kernels_compile_for_tpus(name, length, shape, dtype, size, base, options):
    """Forward and backward, split over two devices by rows and two by heads; `plan` counts their cycles."""
    mesh = mesh_of(shape, devices("v5e:2x2")[: np.prod(shape)])
    by_rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(meshes.ROWS))
    real = {"bf16": jnp.bfloat16, "f32": jnp.float32}[dtype]
    x = jax.ShapeDtypeStruct((4, length, 4, size), real, sharding=by_rows)
    ids = jax.ShapeDtypeStruct((4, length), jnp.int32, sharding=by_rows)

    def total(q, k, v, ids):
        keys = kit.keys_of(ids) if name == "fused" else None
        angles = rotary.angles(ids, size, base) if base else ()
        attend = kit.attend(name, ids, angles=angles, **options)
        return attend(q, k, v, keys).astype(jnp.float32).sum()

    with jax.set_mesh(mesh), compiling(), jax.default_matmul_precision(None):
        assert attention.device_and_kernels() == attention.device_and_kernels(mesh) == kit.TPU
        both = jax.jit(jax.value_and_grad(total, argnums=(0, 1, 2)))
        text = both.lower(x, x, x, ids).compile().as_text()
    rows, heads = 4 // shape[0], 4 // shape[2]
    computations = hlo.computations(text)[0].values()
    every = (instruction for instructions in computations for instruction in instructions)
    calls = [call for call in every if 'custom_call_target="tpu_custom_call"' in call.text]
    assert len(calls) == (3 if name == "splash" and "window" in options else 2)
    part = {"splash": [rows, heads, size, length], "fused": [rows, length, heads * size]}[name]
    assert all(f"{dtype}[{','.join(map(str, part))}]" in str(call) for call in calls)
    assert all(custom_calls.cycles(call, mesh) > 0 for call in calls)


def test_the_flops_of_splash_are_those_of_the_blocks_that_it_visits():
    """A local layer of rows of 1,024 tokens visits 12 of 16 blocks of 256; the kernel for all three gradients visits
    all pairs."""
    x, a_pair = (8, 4, 64, 1024), 2 * 8 * 4 * 64  # rows, heads, size, tokens
    for part, blocks, products in (("fwd", (4, 3), 2), ("dq", (4, 3), 3), ("dkv", (3, 4), 4)):
        flops = attention_splash.flops(f"splash_mha_{part}_x", [(1, *blocks), x, x], [x])
        assert flops == products * a_pair * 12 * 256**2
    flops = attention_splash.flops("splash_mha_dkv", [(1, 2, 2), x, x], [(2, *x)])
    assert flops == 5 * a_pair * 1024**2

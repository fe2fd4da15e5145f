"""Layers on GPUs compute the same numbers as on other devices, and their programs write less to memory."""

import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kits.gpu_layers import GPU, compile_for_gpus
from kits.small import (
    MODERN,
    VOCABULARY,
    loss_of,
    mesh_of,
    small_batch,
    small_config,
    small_objective,
    small_params,
)

from bert_jax.layers import attention, attention_xla, blocks, dropout, gpu
from bert_jax.layers.attention_spec import Mask, Spec
from bert_jax.layers.blocks import Attention, Inputs, LayerOptions
from bert_jax.objectives import base
from bert_jax.parallel import mesh as meshes
from bert_jax.runs import run_info


def lower(function, arrays, platform) -> str:
    """Returns the program of the gradients of a sum over function(*arrays), before XLA changes it."""
    learn = jax.grad(lambda *arrays: function(*arrays).sum(), argnums=tuple(range(len(arrays))))
    return jax.jit(learn).trace(*arrays).lower(lowering_platforms=(platform,)).as_text()


@pytest.mark.parametrize("is_deterministic", [True, False])
def test_the_log_says_how_a_restart_gives_the_same_bits(is_deterministic):
    phase = {"rows_per_device": 16, "micro_batches": 1, "attention": "xla"}
    info = {"parameters": 9, "devices": ["cpu"], "unigram_entropy": 3.5, "phases": {"main": phase}}
    info |= {"vocabulary": VOCABULARY._asdict(), "deterministic": is_deterministic}
    info["optimizer_bytes_per_parameter"] = 8.0
    text = run_info.describe(small_config(), info)
    assert (gpu.DETERMINISTIC in text) != is_deterministic


def random_arrays(count, shape, dtype):
    keys = jax.random.split(jax.random.key(0), count)
    return [jax.random.normal(key, shape, dtype) for key in keys]


def attend(q, k, v):
    is_seen = jnp.ones((1, 1, 16, 16), bool)
    return attention_xla.masked_attention(q, k, v, is_seen, None, 0.0)


def test_on_gpus_all_factors_of_attention_have_16_bits():
    """But for the products, scores are in float32."""
    program = lower(attend, random_arrays(3, (2, 16, 2, 8), jnp.bfloat16), "cuda")
    types = re.findall(r"dot_general.* : \(tensor<\S+x(\w+)>, tensor<\S+x(\w+)>\)", program)
    assert types == 5 * [("bf16", "bf16")]
    assert "tensor<2x2x16x16xf32>" in program


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(jnp.float32, 2e-6), (jnp.bfloat16, 2e-2)], ids=["32", "16"]
)
def test_attention_on_gpus_has_the_gradients_of_the_reference(dtype, tolerance):
    """To a second sequence, with dropout, masked keys, and a row that has none to attend to."""
    rows, length, keys, heads, size = 3, 6, 10, 2, 8
    draw = np.random.default_rng(0)
    q, output = draw.normal(size=(2, rows, length, heads, size))
    k, v = draw.normal(size=(2, rows, keys, heads, size))
    mask = draw.random((rows, 1, length, keys)) < 0.7
    mask[1] = False

    def gradients(attend):
        def value(q, k, v):
            mixed = attend(q, k, v, jnp.asarray(mask), jnp.arange(rows, dtype=jnp.uint32), 0.3)
            return (mixed * output.astype(dtype)).astype(jnp.float32).sum()

        vectors = (x.astype(dtype) for x in (q, k, v))
        return jax.jit(jax.grad(value, (0, 1, 2)))(*vectors)

    expected = gradients(attention_xla.masked_softmax)
    for ours, reference in zip(gradients(attention_xla.attention_on_gpu), expected, strict=True):
        ours, reference = (np.asarray(x, np.float32) for x in (ours, reference))
        np.testing.assert_allclose(ours, reference, atol=tolerance * np.abs(reference).max())


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(4, 1, 1), (1, 2, 1), (1, 1, 2)], ids=["data", "fsdp", "tensor"])
def test_a_program_for_gpus_has_the_same_gradients_on_a_mesh(monkeypatch, shape):
    objective = small_objective("model.layers=1")
    params = small_params(objective)

    def learn(mesh):
        with jax.set_mesh(mesh):
            placed = jax.device_put(params, meshes.parameters(params, mesh))
            batch = jax.device_put(small_batch(4), meshes.rows(mesh))
            gradients = jax.jit(jax.grad(loss_of(objective)))(placed, batch)
        return jax.flatten_util.ravel_pytree(jax.device_get(gradients))[0]

    expected = learn(mesh_of((1, 1, 1)))
    compile_for_gpus(monkeypatch)
    scale = abs(expected).max()
    np.testing.assert_allclose(learn(mesh_of(shape)) / scale, expected / scale, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [("model.layers=1",), ("task.pair_task=none", *MODERN, "model.layers=2")],
    ids=["bert", "modernbert"],
)
def test_a_program_for_gpus_has_the_same_gradients(monkeypatch, settings):
    """With packed attention, dropout, and layers with and without biases and windows."""
    objective = small_objective(*settings)
    params = small_params(objective)

    def learn():
        gradients = jax.jit(jax.grad(loss_of(objective)))(params, small_batch(4))
        return jax.flatten_util.ravel_pytree(gradients)[0]

    expected = learn()
    compile_for_gpus(monkeypatch)
    scale = abs(expected).max()
    np.testing.assert_allclose(learn() / scale, expected / scale, atol=1e-5)


def test_queries_keys_and_values_share_the_products_of_the_backward_pass(monkeypatch):
    """Two instead of six: for the gradients of their input and of their kernels."""
    layer = Attention(2, Spec("xla", 8), LayerOptions("gelu", 0.02, 0.02, 1e-6, jnp.float32, True))
    inputs = Inputs(Mask(jnp.ones((1, 4), jnp.int32)))
    x = jnp.zeros((1, 4, 16))
    arrays = x, layer.init(jax.random.key(0), x, inputs, None)

    def attend(x, params):
        return layer.apply(params, x, inputs, None)[0]

    products = lower(attend, arrays, "cuda").count("dot_general")
    monkeypatch.setattr(gpu, "find_device", lambda mesh=None: GPU)
    assert products - lower(attend, arrays, "cuda").count("dot_general") == 4


@pytest.mark.parametrize(("window", "length"), [(0, 1024), (8, 1024)])
def test_gpus_save_no_array_of_pairs_of_large_rows(monkeypatch, window, length):
    vectors = jnp.zeros((1, length, 2, 8))
    mask = Mask(jnp.ones((1, length), jnp.int32))
    attend = partial(attention.attend, Spec("xla", 8, window), mask, keys=None)

    def largest():
        pull_back = jax.eval_shape(lambda *arrays: jax.vjp(attend, *arrays)[1], *3 * [vectors])
        return max(leaf.size for leaf in jax.tree.leaves(pull_back))

    assert largest() > vectors.size
    compile_for_gpus(monkeypatch)
    assert largest() == vectors.size


def activate(x):
    return blocks.activate(x, "gelu_tanh")


def gated(up, gate):
    return blocks.gated(up, gate, "gelu")


def drop(x):
    return dropout.dropout(x, jnp.arange(2, dtype=jnp.uint32), 0.1)


@pytest.mark.parametrize(
    ("function", "count", "barriers"), [(activate, 1, 1), (gated, 2, 1), (drop, 1, 2)]
)
def test_backward_passes_on_gpus_compute_again(function, count, barriers):
    """A barrier keeps the compiler from computing it in the forward pass, and from saving it."""
    arrays = random_arrays(count, (2, 8), jnp.bfloat16)
    numbers = [
        lower(function, arrays, platform).count("optimization_barrier")
        for platform in ("cuda", "tpu")
    ]
    assert numbers[0] - numbers[1] == barriers


@pytest.mark.parametrize("activation", blocks.ACTIVATIONS)
def test_activations_have_their_derivatives(activation):
    (x,) = random_arrays(1, (64,), jnp.float32)
    ours = jax.grad(lambda x: blocks.activate(x, activation).sum())(x)
    expected = jax.grad(lambda x: blocks.ACTIVATIONS[activation](x).sum())(x)
    np.testing.assert_allclose(ours, expected, rtol=1e-6)


def test_the_gradient_of_a_logit_is_not_scattered():
    (logits,) = random_arrays(1, (2, 3, 8), jnp.float32)
    targets = jnp.array([[0, 7, 3], [2, 2, 5]])
    weights = jnp.arange(6.0).reshape(2, 3)
    learn = jax.jit(jax.grad(lambda logits: (weights * base.logit_of(logits, targets)).sum()))
    assert "scatter" not in learn.lower(logits).as_text()
    np.testing.assert_array_equal(learn(logits), weights[..., None] * jax.nn.one_hot(targets, 8))

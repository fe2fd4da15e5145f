"""ModernBERT: parameters, initial values, dropout, the cost of local attention, and rotary bases that change with the
phase."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kits import small
from kits.small import MODERN, VOCABULARY, small_config

from bert_jax import build, config
from bert_jax.convert import names
from bert_jax.errors import BadInput
from bert_jax.layers import attention_kernel, attention_xla, counts
from bert_jax.layers.attention_spec import Mask, Spec
from bert_jax.models import base as models
from bert_jax.objectives import base
from bert_jax.parallel import mesh as meshes
from bert_jax.tasks.text import mlm_batch
from bert_jax.tokenizers.special_tokens import Vocabulary

SMALL = (*MODERN, "task.pair_task=none")


@pytest.mark.parametrize(
    ("name", "parameters", "body"),
    [("modern_base", 149_655_232, 149_014_272), ("modern_large", 395_881_664, 394_781_696)],
)
def test_sizes_are_the_published_ones(name, parameters, body):
    vocabulary = Vocabulary(50_368, *range(5))
    settings = config.load(name, ["dtype=float32"])
    made = base.make(settings, vocabulary)
    params = jax.eval_shape(made.init, jax.random.key(0), zeros(8))
    expected = {"parameters": parameters, "body_parameters": body}
    assert models.parameters(settings, params, vocabulary.size) == expected


@pytest.mark.slow
def test_initial_values_are_those_of_megatron():
    """Weights whose output is added to the stream, and of the head, are smaller, by the root of twice the number of
    layers."""
    keys = small_config(*SMALL, "model.width=64", "model.initializer=0.1")
    params = names.by_path(base.make(keys, VOCABULARY).init(jax.random.key(0), zeros(8)))
    for path, array in params.items():
        *_, module, name = path.split("/")
        is_small = module in ("out", "down", "dense")
        if name == "kernel":  # 0.8796: of a normal cut at two deviations
            expected = 0.8796 * 0.1 / (math.sqrt(8) if is_small else 1)
            np.testing.assert_allclose(array.std(), expected, rtol=0.05, err_msg=path)
    assert [path for path in params if path.endswith("bias")] == ["mlm/bias"]
    assert "network/blocks_0/attention_norm/scale" not in params


@pytest.mark.slow
def test_dropout_is_on_the_output_of_attention_alone():
    """If that is zero, the loss does not depend on the seed."""
    keys = small_config(*SMALL, "model.dropout=0.5", "model.layers=1")
    made, rows = base.make(keys, VOCABULARY), small.synthetic(4, 32, 5, 200)
    params, totals = made.init(jax.random.key(0), rows), made.weights(rows)
    none = jax.tree.map_with_path(lambda path, x: x * (path[-2].key != "out"), params)
    loss = jax.jit(lambda params, seed: made.loss(params, rows, totals, seed, train=True)[0])
    losses = [[loss(tree, jnp.uint32(seed)) for seed in (1, 2)] for tree in (params, none)]
    assert losses[0][0] != losses[0][1] and losses[1][0] == losses[1][1]


def zeros(length: int):
    shapes = mlm_batch.shapes(1, length, 2)
    return {name: jnp.zeros(leaf.shape, leaf.dtype) for name, leaf in shapes.items()}


def test_useful_flops_are_those_of_the_window():
    """Two full layers see 32 keys a token, and two local ones 9: itself and 4 on each side."""
    keys = small_config(*SMALL)
    width, hidden, length, predictions = 32, 48, 32, 5
    rows = mlm_batch.shapes(3, length, predictions)
    made = base.make(keys, VOCABULARY)
    params = jax.eval_shape(made.init, jax.random.key(0), rows)
    layers = 4 * (8 * width**2 + 6 * width * hidden) * length
    pairs = 4 * width * length * (2 * length + 2 * 9)
    head = 2 * predictions * (width**2 + width * 256)  # the vocabulary is padded to 256
    assert base.step_flops(keys, VOCABULARY, params, rows) == 3 * 3 * (layers + pairs + head)


def test_local_attention_of_long_rows_has_a_tenth_of_the_work():
    """Forward and backward, by the products in the program, and by the memory of the compiled one. The window is 128,
    and a block has 64 queries in `xla`, and 128 in `fused`."""
    vectors = [jax.ShapeDtypeStruct((1, 8192, 1, 64), jnp.float32)] * 3
    ids = jax.ShapeDtypeStruct((1, 8192), jnp.int32)

    def costs(**window):
        def total(q, k, v, ids):
            return attention_xla.attend(Spec("xla", 64, **window), Mask(ids), q, k, v, None).sum()

        learn = jax.grad(total, argnums=(0, 1, 2))
        memory = jax.jit(learn).lower(*vectors, ids).compile().memory_analysis()
        flops = counts.products(jax.make_jaxpr(learn)(*vectors, ids).jaxpr)
        return flops, memory.temp_size_in_bytes

    (full, most), (local, least) = costs(), costs(window=128)
    assert full == 3 * 4 * 64 * 8192**2 and local == full * 192 / 8192
    assert least < most / 10
    assert attention_kernel.block_shape(8192, 128) == (128, 256)


@pytest.mark.slow
@pytest.mark.parametrize("key", ["rotary_base", "local_rotary_base"])
def test_the_programs_of_a_phase_have_its_rotary_base(key):
    keys = small_config(*SMALL, f"model.{key}=5000.0")
    (phase,) = config.phases(keys)
    design = build.design(keys, build.make_mesh(keys, [phase]), VOCABULARY)

    def programs(base):
        phase.keys[key] = base
        lowers = build.lower_train, build.lower_evaluate
        return [lower(keys, design, phase).as_text() for lower in lowers]

    with jax.set_mesh(design.mesh):
        own, same, none = (programs(base) for base in (100.0, 5000.0, 0.0))
    assert same == none and own[0] != none[0] and own[1] != none[1]
    with pytest.raises(BadInput, match=f"phases.main.{key}"):
        small_config(*SMALL, f"phases.main.{key}=0.5")


def test_after_a_step_the_model_is_that_of_its_phase():
    keys = config.load("modern_base")
    *_, last = config.phases(keys)
    bases = {step: config.at_step(keys, step).model.rotary_base for step in (0, 1, last.stop)}
    assert bases == {0: 10_000, 1: 10_000, last.stop: 160_000}


@pytest.mark.full
def test_loss_and_gradients_do_not_depend_on_the_mesh():
    """Packed rows, longer than a window and its block, on 2 x 2 x 2 devices."""
    keys = small_config(*SMALL)
    made, rows = base.make(keys, VOCABULARY), small.synthetic(8, 32, 5, 200, sequences=2)
    params = made.init(jax.random.key(0), rows)

    def loss(params, rows):
        return made.loss(params, rows, made.weights(rows), jnp.uint32(7), train=True)[0]

    compute = jax.jit(jax.value_and_grad(loss))
    expected, mesh = compute(params, rows), small.mesh_of((2, 2, 2))
    with jax.set_mesh(mesh):
        placed = jax.device_put(params, meshes.parameters(params, mesh))
        gate = placed["network"]["blocks_1"]["feed_forward"]["gate"]["kernel"]
        assert tuple(gate.sharding.spec) == ("fsdp", "tensor")
        actual = compute(placed, jax.device_put(rows, meshes.rows(mesh)))
    jax.tree.map(partial(np.testing.assert_allclose, rtol=2e-4, atol=2e-6), actual, expected)

"""Optimizers against the original's update, written in NumPy."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from kits.small import small_batch, small_config, small_objective, small_params

from bert_jax import optimizer, step
from bert_jax.checkpoints import reader, writer


def constant_rate(step):
    return 0.1


def updated(chain, gradients, state, params, number):
    """As step.train does it."""
    norm = optax.tree.norm(gradients)
    return chain.update(gradients, state, params, step=number, gradient_norm=norm)


def updates_of(settings, params, gradients):
    chain = optimizer.make(settings, constant_rate)
    state = chain.init(params)
    for number, gradient in enumerate(gradients):
        updates, state = updated(chain, gradient, state, params, number)
        params = jax.tree.map(lambda p, u: p + u, params, updates)
    return params


@pytest.mark.parametrize("corrected", [False, True])
def test_adam_is_the_originals(corrected):
    settings = small_config(f"optimizer.bias_correction={corrected}").optimizer
    draw = np.random.default_rng(0)
    kernel, bias = draw.normal(size=(3, 4)), draw.normal(size=4)
    gradients = [
        {"kernel": draw.normal(size=(3, 4)), "bias": draw.normal(size=4)} for _ in range(3)
    ]
    expected = {"kernel": kernel, "bias": bias}
    m = {name: 0 * value for name, value in expected.items()}
    v = {name: 0 * value for name, value in expected.items()}
    for number, gradient in enumerate(gradients, 1):
        norm = np.sqrt(sum((value**2).sum() for value in gradient.values()))
        for name, value in gradient.items():
            value = value * min(1, 1.0 / norm)
            m[name] = 0.9 * m[name] + 0.1 * value
            v[name] = 0.999 * v[name] + 0.001 * value**2
            corrections = (1 - 0.9**number, 1 - 0.999**number) if corrected else (1, 1)
            update = (m[name] / corrections[0]) / (np.sqrt(v[name] / corrections[1]) + 1e-6)
            decay = 0.01 * expected[name] if name == "kernel" else 0
            expected[name] = expected[name] - 0.1 * (update + decay)
    single = jax.tree.map(np.float32, gradients)
    params = updates_of(settings, {"kernel": np.float32(kernel), "bias": np.float32(bias)}, single)
    for name, value in expected.items():
        np.testing.assert_allclose(params[name], value, rtol=2e-5)


def test_decay_leaves_biases_and_norms_alone():
    mask = optimizer.decayed(small_params(small_objective()))
    decayed = {
        jax.tree_util.keystr(p, simple=True, separator="/")
        for p, m in jax.tree.leaves_with_path(mask)
        if m
    }
    assert "encoder/embedder/words" in decayed and "encoder/embedder/positions" in decayed
    assert "encoder/blocks_1/attention/query/kernel" in decayed and "pair/kernel" in decayed
    assert not any("norm" in name or name.endswith("bias") for name in decayed)
    assert len(decayed) == 3 + 2 * 6 + 3  # tables, kernels of two blocks, pooler and heads


@pytest.mark.parametrize("name", ["adam", "adafactor"])
def test_learns_one_batch_by_heart(name):
    rate = 0.03 if name == "adafactor" else 0.002
    settings = small_config(f"optimizer.name={name}", "optimizer.weight_decay=0")
    objective, batch = small_objective(), small_batch()
    params, totals = small_params(objective), objective.weights(batch)
    chain = optimizer.make(settings.optimizer, lambda step: rate)

    @jax.jit
    def update(params, state):
        differentiate = jax.value_and_grad(objective.loss, has_aux=True)
        (value, _), gradients = differentiate(params, batch, totals, 0, train=False)
        updates, state = updated(chain, gradients, state, params, 0)
        return jax.tree.map(lambda p, u: p + u, params, updates), state, value

    state, losses = chain.init(params), []
    for _ in range(120):
        params, state, value = update(params, state)
        losses.append(float(value))
    assert losses[0] == pytest.approx(np.log(200) + np.log(2), abs=0.2)
    assert losses[-1] < 0.5
    # Weight decay, moments and clipping leave the padded rows where they were.
    assert (params["encoder"]["embedder"]["words"][200:] == 0).all()


@pytest.mark.parametrize("corrected", [False, True])
def test_a_bfloat16_moment_is_rounded_once_a_step(corrected):
    """Half the memory; the first update is float32's, later ones are within the rounding of the moment."""
    form = f"optimizer.bias_correction={corrected}"
    exact, rounded = (
        optimizer.adam(small_config(form, f"optimizer.moment_dtype={dtype}").optimizer)
        for dtype in ("float32", "bfloat16")
    )
    params = small_params(small_objective())
    draw = np.random.default_rng(0)

    def bytes_of(state):
        return sum(leaf.nbytes for leaf in jax.tree.leaves(state) if leaf.ndim)

    a, b = exact.init(params), rounded.init(params)
    size = bytes_of(params)
    assert (bytes_of(a), bytes_of(b)) == (2 * size, 1.5 * size)
    for number in range(5):
        gradients = jax.tree.map(lambda p: draw.normal(size=p.shape).astype(np.float32), params)
        (x, a), (y, b) = exact.update(gradients, a, params), rounded.update(gradients, b, params)
        assert {leaf.dtype for leaf in jax.tree.leaves(b.mu)} == {jax.numpy.dtype("bfloat16")}
        assert {leaf.dtype for leaf in jax.tree.leaves((y, b.nu))} == {np.dtype("float32")}
        kept = jax.tree.map(lambda m: np.float32(m.astype("bfloat16")), a.mu)
        if number == 0:
            jax.tree.map(np.testing.assert_array_equal, x, y)
            jax.tree.map(lambda m, k: np.testing.assert_array_equal(np.float32(m), k), b.mu, kept)
        # bfloat16 has eight bits; nine tenths of what was lost before comes on top, at most ten times in all.
        for u, v in zip(jax.tree.leaves(x), jax.tree.leaves(y), strict=True):
            assert np.linalg.norm(u - v) <= (number > 0) * 10 * 2**-9 * np.linalg.norm(u)


def test_checkpoints_keep_the_moments_dtype(tmp_path):
    settings = small_config("optimizer.moment_dtype=bfloat16").optimizer
    chain, params = optimizer.make(settings, constant_rate), small_params(small_objective())
    _, opt_state = updated(chain, params, chain.init(params), params, 0)
    state = step.State(jax.numpy.int32(1), params, opt_state)
    places = jax.tree.map(lambda leaf: leaf.sharding, state)
    with writer.manager(tmp_path) as checkpoints:
        writer.save(checkpoints, 1, state, reader.fingerprints(reader.items(state)), run="")
        writer.finish(checkpoints)
    found = writer.restore(tmp_path / "1", jax.eval_shape(lambda: state), places)
    moments = [leaf for leaf in jax.tree.leaves(found.opt_state) if leaf.dtype == "bfloat16"]
    assert len(moments) == len(jax.tree.leaves(params))
    assert any(leaf.any() for leaf in moments)
    jax.tree.map(np.testing.assert_array_equal, found, state)


@pytest.mark.slow
def test_a_bfloat16_moment_learns_as_float32_does():
    """Twenty steps on one batch: losses within a hundredth of float32's, and not the same ones."""
    objective, batch = small_objective(), small_batch()

    def curve(dtype):
        settings = small_config(f"optimizer.moment_dtype={dtype}").optimizer
        chain = optimizer.make(settings, lambda step: 0.002)
        function = partial(
            step.train, objective=objective, optimizer=chain, seed=3, micro_batches=1
        )
        function = jax.jit(function)
        state, losses = step.init(objective, chain, 3, batch), []
        for _ in range(20):
            state, values, _ = function(state, batch)
            losses.append(float(values["loss"][0]))
        return np.array(losses)

    exact, rounded = curve("float32"), curve("bfloat16")
    print("largest relative difference", abs(rounded / exact - 1).max())
    assert exact[-1] < exact[0] - 1
    assert 0 < abs(rounded / exact - 1).max() < 1e-2


@pytest.mark.parametrize(
    "name, step, expected",
    [
        ("linear", 0, 0.0),
        ("linear", 5, 0.5),
        ("linear", 10, 0.9),  # the drop at the end of the warm-up is the original's
        ("linear", 60, 0.4),
        ("linear", 100, 0.0),
        ("cosine", 10, 1.0),
        ("cosine", 55, 0.5),
        ("cosine", 100, 0.0),
        ("inverse_sqrt", 10, 1.0),
        ("inverse_sqrt", 40, 0.5),
        ("constant", 99, 1.0),
    ],
)
def test_schedule(name, step, expected):
    for numpy in (jnp, np):
        rate = optimizer.schedule(name, 2.0, 10, 100, numpy)(step)
        assert rate == pytest.approx(2 * expected, abs=1e-6) and rate.dtype == np.float32

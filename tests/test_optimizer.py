"""Optimizers against the original's update, written in NumPy."""

import jax
import numpy as np
import pytest
from small import small_batch, small_config, small_objective, small_params

from bert_jax import optimizer, schedule


def constant_rate(step):
    return 0.1


def updates_of(settings, params, gradients):
    chain = optimizer.make(settings, constant_rate)
    state = chain.init(params)
    for gradient in gradients:
        updates, state = chain.update(gradient, state, params)
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
    for step, gradient in enumerate(gradients, 1):
        norm = np.sqrt(sum((value**2).sum() for value in gradient.values()))
        for name, value in gradient.items():
            value = value * min(1, 1.0 / norm)
            m[name] = 0.9 * m[name] + 0.1 * value
            v[name] = 0.999 * v[name] + 0.001 * value**2
            corrections = (1 - 0.9**step, 1 - 0.999**step) if corrected else (1, 1)
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
        updates, state = chain.update(gradients, state, params)
        return jax.tree.map(lambda p, u: p + u, params, updates), state, value

    state, losses = chain.init(params), []
    for _ in range(120):
        params, state, value = update(params, state)
        losses.append(float(value))
    assert losses[0] == pytest.approx(np.log(200) + np.log(2), abs=0.2)
    assert losses[-1] < 0.5
    # Weight decay, moments and clipping leave the padded rows where they were.
    assert (params["encoder"]["embedder"]["words"][200:] == 0).all()


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
    assert schedule.make(name, 2.0, 10, 100)(step) == pytest.approx(2 * expected, abs=1e-6)

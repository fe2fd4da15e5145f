"""Steps that are not finite are never applied, in any pattern, and are logged; losses that are spikes."""

from dataclasses import replace
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kits.small import VOCABULARY, rate_of, small_batch, small_config

from bert_jax import optimizer, step, step_guard
from bert_jax.objectives import base
from bert_jax.runs import metrics

BAD = {"weight": np.nan, "infinite weight": np.inf, "gradient": np.nan}


@jax.custom_vjp
def poison(x, bad):
    """Returns x; its gradient is `bad` if that is not finite."""
    return x


poison.defvjp(
    lambda x, bad: (x, bad),
    lambda bad, g: (jnp.where(jnp.isfinite(bad), g, bad), jnp.zeros_like(bad)),
)


@cache
def make_step(apply_if=step_guard.apply_if):
    """Returns (initial state, jitted step) of a small model with dropout and a learning rate that always changes."""
    config = small_config("model.layers=1", "model.width=16")
    original = base.make(config, VOCABULARY)

    def loss(params, rows, *others, **kwargs):
        value, values = original.loss(params, rows, *others, **kwargs)
        return poison(value, rows["bad"].sum()), values

    objective = replace(original, loss=loss)
    update = optimizer.make(config, rate_of("linear", 1e-2, 2, 20), None)
    state = jax.jit(partial(step.init, objective, update, 3))(batch(0))
    options = step.StepOptions(apply_if=apply_if)
    train = partial(step.train, objective=objective, optimizer=update, seed=3, options=options)
    return state, jax.jit(train)


def batch(number: int, bad: str = "") -> dict:
    rows = small_batch(4, seed=number) | {"bad": np.zeros(4, np.float32)}
    if "weight" in bad:
        rows["masked_weights"][1, 0] = BAD[bad]
    elif bad:
        rows["bad"][2] = BAD[bad]
    return rows


def same_bits(a, b) -> bool:
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(np.asarray(x).tobytes() == np.asarray(y).tobytes() for x, y in pairs)


@pytest.mark.slow
@pytest.mark.parametrize("apply_if", [step_guard.apply_if, step_guard.apply_if_on_gpu])
def test_bad_steps_change_only_the_step_number(apply_if):
    """The result is as if only the good steps had been taken, each with the rate and dropout of its step number."""
    first, train = make_step(apply_if)
    seed = np.random.SeedSequence().entropy
    print("seed", seed)
    draw = np.random.default_rng(seed)
    for _ in range(5):
        pattern = [str(draw.choice([*BAD, "", ""])) for _ in range(7)]
        state, expected, in_a_row = first, first, 0
        for number, bad in enumerate(pattern):
            state, _, verdict = train(state, batch(number, bad))
            assert bool(verdict.is_applied) == (not bad), pattern
            in_a_row = in_a_row + 1 if bad else 0
            assert state.opt_state.bad_in_a_row == in_a_row, pattern
            text = step_guard.describe(number, jax.device_get(verdict))
            assert text.startswith(f"step {number}: ") if bad else not text
            if not bad:
                expected, *_ = train(expected._replace(step=jnp.int32(number)), batch(number))
        assert same_bits(state.params, expected.params), pattern
        states = state.opt_state, expected.opt_state
        assert same_bits(*(part._replace(bad_in_a_row=0) for part in states)), pattern
        assert state.step == len(pattern)


def test_metrics_are_means_over_the_applied_steps():
    state, train = make_step()
    sums = None
    expected = []
    for number, bad in enumerate(["", "weight", "", "gradient"]):
        state, values, _ = train(state, batch(number, bad))
        sums = values if sums is None else metrics.add(sums, values)
        expected += [] if bad else [metrics.means(values)["loss"]]
    means = metrics.means(sums)
    assert means["loss"] == pytest.approx(np.mean(expected), rel=1e-6)
    assert means["skipped"] == 0.5 and means["spikes"] == 0
    assert all(np.isfinite(value) for value in means.values())
    assert np.isnan(metrics.means(values)["loss"])  # of the last step only
    # The rows that pad the vocabulary stay zero.
    assert not state.params["network"]["embedder"]["words"][VOCABULARY.size :].any()


def judged(losses, **limits):
    """Returns ([verdict], final band) for a sequence of losses."""
    judge = jax.jit(partial(step_guard.judge, **limits))
    state = step_guard.guarded(())
    verdicts = []
    for loss in losses:
        verdict, band = judge(state, jnp.float32(loss), jnp.float32(1))
        state = step_guard.Guarded((), band, verdict.bad_in_a_row)
        verdicts.append(jax.device_get(verdict))
    return verdicts, state.band


LIMITS = {"window": 20, "spike": 6.0, "skip_spikes": True}


def test_spikes_are_distinguished_from_noise():
    losses = np.random.default_rng(0).normal(3, 0.1, 200)
    losses[[5, 60, 120]] = 9.0, 5.0, np.inf  # the first of them is within the initial window
    verdicts, band = judged(losses, **LIMITS)
    assert [i for i, verdict in enumerate(verdicts) if verdict.is_spike] == [60]
    assert [i for i, verdict in enumerate(verdicts) if not verdict.is_applied] == [60, 120]
    assert step_guard.describe(60, verdicts[60]).startswith("step 60: ")
    assert band.mean == pytest.approx(3, abs=0.15) and band.count == 20
    logged, _ = judged(losses, **LIMITS | {"skip_spikes": False})
    assert logged[60].is_spike and logged[60].is_applied
    falling = 10 * np.exp(-np.arange(300) / 60) + 1
    for quiet, limits in (losses, LIMITS | {"spike": 0.0}), (falling, LIMITS):
        assert not any(verdict.is_spike for verdict in judged(quiet, **limits)[0])


@pytest.mark.parametrize("level", [4.0, 1e6])
def test_a_lasting_level_is_accepted(level):
    """A run does not skip spikes forever: the band widens with each."""
    verdicts, _ = judged([3.0] * 40 + [level] * 200, **LIMITS)
    spikes = [i for i, verdict in enumerate(verdicts) if verdict.is_spike]
    assert spikes == list(range(40, 40 + len(spikes))) and 0 < len(spikes) < 150
    assert all(verdict.bad_in_a_row == 0 for verdict in verdicts)

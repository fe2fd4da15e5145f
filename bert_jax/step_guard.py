"""Decides which steps are applied. A step is skipped if its loss or gradient is not finite and, optionally, if its loss
is a spike.

All values are scalars and the same on every device.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

MIN_DEVIATION = (
    0.01  # least deviation, relative to the mean, so that a nearly constant loss has no spikes
)


class Band(NamedTuple):
    """The running mean and deviation of about the last `window` losses, each clipped to the top of the band."""

    count: jax.Array  # int32[], number of losses, at most `window`
    mean: jax.Array  # float32[]
    deviation: jax.Array  # float32[], mean absolute deviation


class Guarded(NamedTuple):
    """The optimizer's state and the guard's; checkpoints contain both."""

    inner: Any
    band: Band
    # int32[], number of steps in a row, up to the last one, that were not finite.
    bad_in_a_row: jax.Array


class Verdict(NamedTuple):
    """The guard's decision on one step."""

    loss: jax.Array  # float32[]
    gradient_norm: jax.Array  # float32[]
    top: jax.Array  # float32[], of the band; infinite while there is no band
    is_spike: jax.Array  # bool[], the loss is finite and above the top
    is_applied: jax.Array  # bool[]
    # int32[], number of steps in a row, up to this one, that were not finite.
    bad_in_a_row: jax.Array


def guarded(inner) -> Guarded:
    """Returns the initial Guarded state around the optimizer's state `inner`."""
    zero = jnp.zeros((), jnp.float32)
    band = Band(jnp.zeros((), jnp.int32), zero, zero)
    return Guarded(inner, band, jnp.zeros((), jnp.int32))


def judge(
    state: Guarded, loss, gradient_norm, *, window=100, spike=0.0, skip_spikes=False, **_
) -> tuple[Verdict, Band]:
    """Returns the verdict on a step and the band after it. The keyword arguments are keys of `config.guard`."""
    is_finite = jnp.isfinite(loss) & jnp.isfinite(gradient_norm)
    highest = top(state.band, window, spike)
    is_spike = is_finite & (loss > highest)
    is_applied = is_finite & ~is_spike if skip_spikes else is_finite
    # The loss is clipped so that one spike hardly moves the band. Each spike widens it, so it soon contains a lasting
    # change of level.
    next_band = follow(state.band, jnp.minimum(loss, highest), window)
    band = choose(is_finite, next_band, state.band)
    bad_in_a_row = jnp.where(is_finite, 0, state.bad_in_a_row + 1)
    return Verdict(loss, gradient_norm, highest, is_spike, is_applied, bad_in_a_row), band


def top(band: Band, window: int, spike: float):
    """Returns float32[], the largest loss that is not a spike: mean + `spike` deviations; infinite before `window`
    losses."""
    if not spike:
        return jnp.float32(jnp.inf)
    deviation = jnp.maximum(band.deviation, MIN_DEVIATION * jnp.abs(band.mean))
    return jnp.where(band.count < window, jnp.inf, band.mean + spike * deviation)


def follow(band: Band, loss, window: int) -> Band:
    """Returns the band updated with a loss: a plain mean over the first `window` losses, then an exponential one."""
    count = jnp.minimum(band.count + 1, window)
    distance = loss - band.mean
    deviation = band.deviation + (jnp.abs(distance) - band.deviation) / count
    return Band(count, band.mean + distance / count, deviation)


def apply_if(is_applied, apply, old):
    """Returns apply(*old) if is_applied, else `old`: a tuple of trees.

    `cond` computes only the chosen branch. `where` would hold both results in memory and be rounded differently.
    """
    return jax.lax.cond(is_applied, apply, lambda *unchanged: unchanged, *old)


def apply_if_on_gpu(is_applied, apply, old):
    """Returns what `apply_if` does, up to rounding: a GPU copies the results of `cond`, while `where` is part of the
    update, and what it does not choose is never written to memory."""
    return choose(is_applied, apply(*old), old)


def choose(is_new, new, old):
    """Returns `new` if is_new, else `old`, bit for bit; the other tree may contain NaN."""
    return jax.tree.map(lambda a, b: jnp.where(is_new, a, b), new, old)


def reason(verdict: Verdict) -> str:
    """Says what is wrong with a step, given its verdict on the host; '' if nothing is."""
    if verdict.bad_in_a_row:
        if math.isfinite(verdict.loss):
            return f"the gradient norm is {verdict.gradient_norm}"
        return f"the loss is {verdict.loss}"
    if verdict.is_spike:
        return f"the loss {verdict.loss:.4g} is a spike: above {verdict.top:.4g}"
    return ""


def describe(step: int, verdict: Verdict) -> str:
    """Describes a step that was skipped or is suspect in one line, otherwise ''. step: as in `inspect --step`."""
    problem = reason(verdict)
    if not problem:
        return ""
    result = "applied" if verdict.is_applied else "skipped"
    text = f"step {step}: {problem}; {result}"
    if verdict.bad_in_a_row > 1:
        text += f" ({verdict.bad_in_a_row} in a row)"
    return text

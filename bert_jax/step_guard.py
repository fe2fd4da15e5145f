"""Which steps are applied: none whose loss or gradient is not finite and, where asked for, no spike of the loss.

Scalars, the same on every device.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

LEAST = 0.01  # deviation, as a share of the mean: a loss that hardly moves has no spikes


class Band(NamedTuple):
    """Of the losses of about the last `window` steps, each at most the band's top as it was then."""

    count: jax.Array  # int32[], losses that it has seen
    mean: jax.Array  # float32[]
    deviation: jax.Array  # float32[], mean distance from the mean


class Guarded(NamedTuple):
    """The optimizer's state, and beside it what the guard remembers: checkpoints hold both."""

    inner: Any
    band: Band
    row: jax.Array  # int32[], steps in a row, up to the last one, that were not finite


class Verdict(NamedTuple):
    """Of one step."""

    loss: jax.Array  # float32[]
    gradient_norm: jax.Array  # float32[]
    top: jax.Array  # float32[], of the band; infinite where there is none yet
    is_spike: jax.Array  # bool[], finite and above it
    is_applied: jax.Array  # bool[]
    row: jax.Array  # int32[], steps in a row, with this one, that were not finite


def guarded(inner) -> Guarded:
    """The state before the first step, around the optimizer's."""
    zero = jnp.zeros((), jnp.float32)
    return Guarded(inner, Band(jnp.zeros((), jnp.int32), zero, zero), jnp.zeros((), jnp.int32))


def judge(
    state: Guarded,
    loss,
    gradient_norm,
    *,
    window: int = 100,
    spike: float = 0.0,
    skip_spikes: bool = False,
) -> tuple[Verdict, Band]:
    """The verdict on a step, and the band after it; the keys are those of `config.guard`."""
    is_finite = jnp.isfinite(loss) & jnp.isfinite(gradient_norm)
    highest = top(state.band, window, spike)
    is_spike = is_finite & (loss > highest)
    is_applied = is_finite & ~is_spike if skip_spikes else is_finite
    # Clipped, so that one spike hardly moves the band; it widens with each, and a level that lasts is in it soon.
    band = choose(is_finite, follow(state.band, jnp.minimum(loss, highest), window), state.band)
    row = jnp.where(is_finite, 0, state.row + 1)
    return Verdict(loss, gradient_norm, highest, is_spike, is_applied, row), band


def top(band: Band, window: int, spike: float):
    """float32[], the largest loss that is no spike: `spike` deviations above the mean, after `window` losses."""
    if not spike:
        return jnp.float32(jnp.inf)
    deviation = jnp.maximum(band.deviation, LEAST * jnp.abs(band.mean))
    return jnp.where(band.count < window, jnp.inf, band.mean + spike * deviation)


def follow(band: Band, loss, window: int) -> Band:
    """The plain mean over the first `window` losses, an exponentially weighted one from then on."""
    count = jnp.minimum(band.count + 1, window)
    distance = loss - band.mean
    deviation = band.deviation + (jnp.abs(distance) - band.deviation) / count
    return Band(count, band.mean + distance / count, deviation)


def choose(is_new, new, old):
    """A tree, all of it new or, bit for bit, old: what is not chosen may hold anything, NaN too."""
    return jax.tree.map(lambda a, b: jnp.where(is_new, a, b), new, old)


def not_finite(tree):
    """bool[] of each leaf: whether it holds a number that is not finite."""
    return jax.tree.map(lambda x: ~jnp.isfinite(x).all(), tree)


def reason(verdict: Verdict) -> str:
    """What is wrong with a step, read on the host; '' where nothing is."""
    if verdict.row:
        name = "gradient_norm" if math.isfinite(verdict.loss) else "loss"
        return f"the {name.replace('_', ' ')} is {getattr(verdict, name)}"
    if verdict.is_spike:
        return f"the loss {verdict.loss:.4g} is above the band, which ends at {verdict.top:.4g}"
    return ""


def describe(step: int, verdict: Verdict) -> str:
    """One line on the step with this index, the one that `bert-jax inspect --step` shows; '' where it was as usual."""
    if not (what := reason(verdict)):
        return ""
    done = "applied" if verdict.is_applied else "skipped"
    row = f" ({verdict.row} in a row)" if verdict.row > 1 else ""
    return f"step {step}: {what}; {done}{row}"

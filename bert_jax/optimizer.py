"""One readable optax chain: clip, an optimizer with its decay, schedule, rates by layer.

`update` takes two keyword arguments in addition to optax's: `step`, and `gradient_norm`, the global norm of the
gradients, which the training step has already computed.
"""

import jax
import jax.numpy as jnp
import optax

from bert_jax.models import base as models
from bert_jax.registry import find_part


def make(config, rate, peak) -> optax.GradientTransformationExtraArgs:
    """Returns the optimizer of a config.

    rate: step -> learning rate.
    peak: step -> the highest rate of the schedule in force.
    """
    keys = config.optimizer
    clip = optax.identity()
    if keys.clip:
        clip = clip_by_norm(keys.clip)
    scale = find_part("optimizer", keys.name).make(config, peak)
    return optax.chain(clip, scale, scale_by_rate(config, rate))


def clip_by_norm(most: float) -> optax.GradientTransformationExtraArgs:
    """Scales gradients down to a global norm of at most `most`. Optax's own clipping would compute the norm again."""

    def update(updates, state, params=None, *, gradient_norm, **_):
        def clip(u):
            norm = gradient_norm.astype(u.dtype)
            return jnp.where(norm < most, u, u / norm * most)

        return jax.tree.map(clip, updates), state

    return optax.GradientTransformationExtraArgs(optax.init_empty_state, update)


def scale_by_rate(config, rate) -> optax.GradientTransformationExtraArgs:
    """Multiplies updates by -rate(step) and by `layer_decay` once for each layer above.

    Optax's own schedule counts updates, so a skipped step would shift it. For the layers see arXiv:1801.06146, sections
    3.2 and 3.3; its factor is 1 / 2.6. ELECTRA's model/optimization.py has the same rates, but counts one more layer
    between the last block and the heads.
    """

    factor = config.optimizer.layer_decay

    def update(updates, state, params=None, *, step, **_):
        size = -rate(step)
        updates = jax.tree.map(lambda u: jnp.asarray(size, u.dtype) * u, updates)
        if factor != 1:
            above = models.layers_above(config, updates)
            updates = jax.tree.map(lambda u, layers: factor**layers * u, updates, above)
        return updates, state

    return optax.GradientTransformationExtraArgs(optax.init_empty_state, update)


# --- Schedules ------------------------------------------------------------------------------------

RATIO = 32  # of the highest and the lowest rate of the schedule `slanted`
# Schedules whose warm-up and decay proceed by tokens, as those of ModernBERT; the others count steps.
BY_TOKENS = ("constant", "sqrt")


def rate_of(schedules: list, numpy=jnp):
    """Returns the function step (from 0) -> learning rate, float32.

    During a warm-up the rate is peak * step / warmup, so that the first update has rate 0, as in the original BERT.
    After it the rate is the peak times the shape.

    schedules: [config.Schedule], in order.
    numpy: the library that computes the rate. A result of jax.numpy would be available only after the steps in flight.
    """

    def rate(step):
        step = numpy.asarray(step)
        result = numpy.zeros(step.shape, numpy.float32)
        for schedule in schedules:
            share = share_of_peak(step, schedule, numpy)
            result = numpy.where(step < schedule.first, result, schedule.peak * share)
        return result

    return rate


def peak_of(schedules: list, step):
    """Returns the peak of the schedule in force at a step."""
    peak = schedules[0].peak
    for schedule in schedules[1:]:
        peak = jnp.where(step < schedule.first, peak, schedule.peak)
    return peak


def share_of_peak(step, schedule, numpy):
    """Returns the rate at a step as a share of the peak.

    A decay that is longer than the steps after the warm-up starts there. Shares of a decay are computed from what is
    left of it: 1 minus what has passed would have no exact digits near the end.
    """
    name = schedule.name
    risen = schedule.first + schedule.warmup
    rising, _ = progress(step, schedule.first, risen, schedule, numpy)
    begin = risen
    if schedule.decay:
        begin = max(risen, schedule.stop - schedule.decay)
    elif name in ("linear", "root"):  # the warm-up replaces its first steps; then the rate drops
        begin = schedule.first
    passed, left = progress(step, begin, schedule.stop, schedule, numpy)
    end = schedule.end
    if name in ("linear", "slanted"):
        share = left
    elif name == "cosine":
        share = numpy.sin(numpy.pi / 2 * left) ** 2  # half a wave, (1 + cos(pi * passed)) / 2
    elif name == "root":
        share = numpy.sqrt(left)
    elif name == "sqrt":  # arXiv:2405.18392, section 4
        share = left / (1 + numpy.sqrt(passed))  # 1 - sqrt(passed)
    elif name == "inverse_sqrt":
        steps = max(1, schedule.warmup)
        share = numpy.sqrt(steps / numpy.float32(numpy.maximum(step - schedule.first, steps)))
    else:
        share = numpy.ones_like(passed)
    if name == "slanted":  # slanted triangular (arXiv:1801.06146, section 3.2)
        end = 1 / RATIO
        rising = end + (1 - end) * rising
    return numpy.where(step < risen, rising, end + (1 - end) * share)


def progress(step, start: int, end: int, schedule, numpy):
    """Returns the shares of the steps start to end - 1, or of their tokens, that are before `step`, and from it on.

    If `end` is after the schedule, its last phase goes on.
    """
    parts = [(start, end, 1)]
    if schedule.name in BY_TOKENS:
        parts = []
        for phase in schedule.phases:
            first = max(start, phase.first)
            stop = end if phase is schedule.phases[-1] else min(end, phase.stop)
            parts.append((first, stop, (stop - first) * phase.batch * phase.length))
    parts = [part for part in parts if part[0] < part[1]]
    total = sum(size for *_, size in parts)
    passed = left = numpy.zeros(step.shape, numpy.float32)
    for first, stop, size in parts:
        steps = numpy.clip(step - first, 0, stop - first)
        share = numpy.float32(size / total / (stop - first))
        passed = passed + share * numpy.float32(steps)
        left = left + share * numpy.float32(stop - first - steps)
    return passed, left

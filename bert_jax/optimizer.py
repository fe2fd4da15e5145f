"""One readable optax chain: clip, Adam, StableAdamW or Adafactor, decay, schedule, rates by layer.

`update` takes two keyword arguments in addition to optax's: `step`, and `gradient_norm`, the global norm of the
gradients, which the training step has already computed.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax


class Network(NamedTuple):
    """The functions by which the optimizer distinguishes the parameters of a network, see models/base.py."""

    layers_above: (
        Callable  # (params) -> a tree of ints, the number of layers above that of each parameter
    )
    decayed: Callable  # (params) -> a tree of bools, whether weight decay applies


def make(
    config, rate, network: Network, peak=None, scale=None
) -> optax.GradientTransformationExtraArgs:
    """Returns the optimizer that `config` (the group `optimizer`, with the peak as its learning rate) describes.

    rate: step -> learning rate.
    peak: step -> the highest rate of the schedule in force, on which the decay of StableAdamW depends; None: that of
        the config.
    scale: the function `make` of the module that `config.name` names, if any.
    """
    stable = partial(stable_adamw, peak=peak or (lambda step: config.learning_rate))
    scale = scale or {"adam": adam, "stable_adamw": stable, "adafactor": adafactor}[config.name]
    clip = optax.identity()
    if config.clip:
        clip = clip_by_norm(config.clip)
    parts = [clip, scale(config, network)]
    if config.name in ("adam", "adafactor"):  # the others have their own decay
        parts.append(optax.add_decayed_weights(config.weight_decay, network.decayed))
    return optax.chain(*parts, scale_by_rate(config, network, rate))


def first_steps(config, network: Network, params):
    """Returns a tree of ints: the step from which on each parameter is trained, see `unfreeze_every`."""
    above = network.layers_above(params)
    return jax.tree.map(lambda layers: layers * config.unfreeze_every, above)


def select_trained(config, network: Network, gradients, step):
    """Returns the gradients, with zeros for layers that are not trained yet: neither their norm nor moments count."""

    def select(gradient, first: int):
        if first == 0:
            return gradient
        return jnp.where(step >= first, gradient, 0)

    return jax.tree.map(select, gradients, first_steps(config, network, gradients))


def clip_by_norm(most: float) -> optax.GradientTransformationExtraArgs:
    """Scales gradients down to a global norm of at most `most`. Optax's own clipping would compute the norm again."""

    def update(updates, state, params=None, *, gradient_norm, **_):
        def clip(u):
            norm = gradient_norm.astype(u.dtype)
            return jnp.where(norm < most, u, u / norm * most)

        return jax.tree.map(clip, updates), state

    return optax.GradientTransformationExtraArgs(optax.init_empty_state, update)


def scale_by_rate(config, network: Network, rate) -> optax.GradientTransformationExtraArgs:
    """Multiplies updates by -rate(step) and by `layer_decay` once for each layer above. Leaves out those of layers that
    are not trained: not yet (`unfreeze_every`), or never (`frozen`).

    Optax's own schedule counts updates, so a skipped step would shift it. For the layers see arXiv:1801.06146, sections
    3.2 and 3.3; its factor is 1 / 2.6. ELECTRA's model/optimization.py has the same rates, but counts one more layer
    between the last block and the heads.
    """
    is_layered = config.layer_decay != 1 or config.unfreeze_every or config.frozen

    def update(updates, state, params=None, *, step, **_):
        size = -rate(step)

        def scale_layer(u, above: int):
            is_trained = step >= above * config.unfreeze_every
            is_trained &= above == 0 or not config.frozen
            # x + -0.0 has the bits of x, and x + 0.0 has not if x is -0.0.
            return jnp.where(is_trained, config.layer_decay**above * u, -0.0)

        updates = jax.tree.map(lambda u: jnp.asarray(size, u.dtype) * u, updates)
        if is_layered:
            updates = jax.tree.map(scale_layer, updates, network.layers_above(updates))
        return updates, state

    return optax.GradientTransformationExtraArgs(optax.init_empty_state, update)


def adam(config, network: Network) -> optax.GradientTransformation:
    """Returns Adam (arXiv:1412.6980), without bias correction if so configured, as in the original BERT.

    The first moment is stored in `moment_dtype` and updated in float32; optax's `mu_dtype` rounds it twice.
    """
    dtype = config.moment_dtype

    def init(params):
        mu = jax.tree.map(jnp.zeros_like, params)
        nu = jax.tree.map(jnp.zeros_like, params)
        return optax.ScaleByAdamState(jnp.zeros([], jnp.int32), optax.tree.cast(mu, dtype), nu)

    def update(gradients, state, params=None, *, step, **_):
        mu = optax.tree.cast(state.mu, jnp.float32)
        mu = optax.tree.update_moment(gradients, mu, config.beta1, 1)
        nu = optax.tree.update_moment(gradients, state.nu, config.beta2, 2)
        count = optax.safe_increment(state.count)
        correct = partial(correct_bias, config, network, count, step)
        means = correct(config.beta1, mu)
        squares = correct(config.beta2, nu)
        updates = jax.tree.map(lambda m, v: m / (jnp.sqrt(v) + config.epsilon), means, squares)
        return updates, optax.ScaleByAdamState(count, optax.tree.cast(mu, dtype), nu)

    return optax.GradientTransformationExtraArgs(init, update)


def correct_bias(config, network: Network, count, step, beta: float, moments):
    """Returns Adam's moments after `count` updates, without the bias to 0 of their start.

    Those of a layer that is trained from a later step on start there. They are corrected even without
    `bias_correction`: no warm-up makes up for it, and the layer's first updates would be up to seven times too large.
    `step` counts skipped steps, too, which makes their updates smaller at most.
    """

    def correct(moment, first: int):
        if not (config.bias_correction or first):
            return moment
        updates = count
        if first:
            updates = jnp.maximum(step + 1 - first, 1)
        return moment / (1 - beta**updates)

    return jax.tree.map(correct, moments, first_steps(config, network, moments))


def stable_adamw(config, network: Network, peak: Callable) -> optax.GradientTransformation:
    """Returns StableAdamW (arXiv:2304.13013): AdamW with bias correction, whose update of each array is divided by the
    RMS of gradient / sqrt(second moment) where that is above 1. It replaces the clipping of gradients by their norm.

    As in torch-optimi with decouple_lr=True, the weight decay is relative to the rate's share of its peak, and divided
    like the update. torch-optimi debiases the betas instead of the moments, which has the same results.

    peak: step -> that of the schedule in force.
    """
    config = config.copy_and_resolve_references()
    config.bias_correction = True
    scale = adam(config, network)

    def update(gradients, state, params, *, step, **_):
        updates, state = scale.update(gradients, state, params, step=step)
        decay = config.weight_decay / peak(step)
        nu = correct_bias(config, network, state.count, step, config.beta2, state.nu)

        def stabilize(u, p, is_decayed: bool, g, v):
            if is_decayed:
                u += decay * p
            rms = jnp.sqrt(jnp.mean(g**2 / jnp.maximum(v, config.epsilon**2)))
            return u / jnp.maximum(rms, 1.0)

        decayed = network.decayed(params)
        return jax.tree.map(stabilize, updates, params, decayed, gradients, nu), state

    return optax.GradientTransformationExtraArgs(scale.init, update)


def adafactor(config, network: Network) -> optax.GradientTransformation:
    """Returns Adafactor (arXiv:1804.04235) without momentum: factored second moments, updates clipped and scaled by
    RMS."""
    return optax.chain(
        optax.scale_by_factored_rms(),
        optax.clip_by_block_rms(1.0),
        optax.scale_by_param_block_rms(),
    )


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
    elif name == "linear":  # the warm-up replaces its first steps; then the rate drops a little
        begin = schedule.first
    passed, left = progress(step, begin, schedule.stop, schedule, numpy)
    end = schedule.end
    if name in ("linear", "slanted"):
        share = left
    elif name == "cosine":
        share = numpy.sin(numpy.pi / 2 * left) ** 2  # half a wave, (1 + cos(pi * passed)) / 2
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

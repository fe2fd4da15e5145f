"""One readable optax chain: clip, Adam, StableAdamW or Adafactor, decay, schedule, rates by layer.

`update` takes two keyword arguments in addition to optax's: `step`, and `gradient_norm`, the global norm of the
gradients, which the training step has already computed.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

# Rate of fine-tuning times width: that of BERT-base. Adam's best rates are as 1 / width (arXiv:2203.03466, table 3).
FINE_TUNING = 5e-5 * 768
RATIO = 32  # of the highest and the lowest rate of the schedule `slanted`


class Network(NamedTuple):
    """The functions by which the optimizer distinguishes the parameters of a network, see models/base.py."""

    layers_above: (
        Callable  # (params) -> a tree of ints, the number of layers above that of each parameter
    )
    decayed: Callable  # (params) -> a tree of bools, whether weight decay applies


def make(config, rate, network: Network, scale=None) -> optax.GradientTransformationExtraArgs:
    """Returns the optimizer that `config` (the group `optimizer`, with the peak as its learning rate) describes.

    rate: step -> learning rate.
    scale: the function `make` of the module that `config.name` names, if any.
    """
    scale = (
        scale or {"adam": adam, "stable_adamw": stable_adamw, "adafactor": adafactor}[config.name]
    )
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


def stable_adamw(config, network: Network) -> optax.GradientTransformation:
    """Returns StableAdamW (arXiv:2304.13013): AdamW with bias correction, whose update of each array is divided by the
    RMS of gradient / sqrt(second moment) where that is above 1. It replaces the clipping of gradients by their norm.

    As in torch-optimi with decouple_lr=True, the weight decay is relative to the rate's share of its peak, and divided
    like the update. torch-optimi debiases the betas instead of the moments, which has the same results.
    """
    decay_rate = config.weight_decay / config.learning_rate
    decay = optax.add_decayed_weights(decay_rate, network.decayed)
    config = config.copy_and_resolve_references()
    config.bias_correction = True
    adamw = optax.chain(adam(config, network), decay)

    def update(gradients, state, params, *, step, **_):
        updates, state = adamw.update(gradients, state, params, step=step)
        nu = correct_bias(config, network, state[0].count, step, config.beta2, state[0].nu)

        def stabilize(u, g, v):
            rms = jnp.sqrt(jnp.mean(g**2 / jnp.maximum(v, config.epsilon**2)))
            return u / jnp.maximum(rms, 1.0)

        return jax.tree.map(stabilize, updates, gradients, nu), state

    return optax.GradientTransformationExtraArgs(adamw.init, update)


def adafactor(config, network: Network) -> optax.GradientTransformation:
    """Returns Adafactor (arXiv:1804.04235) without momentum: factored second moments, updates clipped and scaled by
    RMS."""
    return optax.chain(
        optax.scale_by_factored_rms(),
        optax.clip_by_block_rms(1.0),
        optax.scale_by_param_block_rms(),
    )


# --- Schedules ------------------------------------------------------------------------------------


class Span(NamedTuple):
    """The steps over which a learning rate changes, and the library that computes it."""

    warmup: int
    first: int  # after the warm-up, at least 1
    total: int
    decay: int  # the last steps, in which `wsd` falls
    phases: Any  # [config.Phase], of which a step has batch x length tokens
    numpy: Any  # jax.numpy or NumPy


def peak_rate(config) -> float:
    """Returns the highest learning rate of a config: its key, for -1 FINE_TUNING / width, or for 0 with `inverse_sqrt`
    (width x warm-up)^-0.5 (arXiv:1706.03762, section 5.3)."""
    rate = config.optimizer.learning_rate
    if rate == -1:
        rate = FINE_TUNING / config.model.width
    if config.schedule.name == "inverse_sqrt" and not rate:
        rate = (config.model.width * max(1, config.schedule.warmup)) ** -0.5
    return rate


def schedule(name: str, peak: float, warmup: int, total: int, numpy=jnp, decay=0, phases=()):
    """Returns the function step (from 0) -> learning rate of a schedule of SHAPES.

    During the warm-up the rate is peak * step / warmup, so the first update has rate 0, as in the original BERT; that
    of `wsd` is measured in tokens. After the warm-up it is the peak times the shape.

    name: a key of SHAPES.
    peak: the highest rate.
    warmup, total, decay: steps.
    numpy: the library that computes the rate. A result of jax.numpy would be available only after the steps in flight.
    phases: [config.Phase], which `wsd` needs. A warm-up that is longer than the run ends as if its last phase went on.
    """
    span = Span(warmup, max(1, warmup), total, decay, phases, numpy)
    shape = SHAPES[name]

    def rate(step):
        step = numpy.asarray(step, numpy.float32)
        if name == "wsd":
            rising = share_of_tokens(step, 0, warmup, span)
        else:
            rising = step / span.first
        share = numpy.where(step < warmup, rising, numpy.maximum(shape(step, span), 0.0))
        if name == "slanted":
            share = (1 + share * (RATIO - 1)) / RATIO
        return peak * share

    return rate


def linear(step, span: Span):
    """Falls to 0 from step 0 on, as in the original BERT: the warm-up replaces only its first steps, so the rate drops
    a little when the warm-up ends."""
    return 1 - step / span.total


def cosine(step, span: Span):
    """Falls from the end of the warm-up by half a wave."""
    progress = span.numpy.clip(share_of_steps(step, span), 0, 1)
    return 0.5 * (1 + span.numpy.cos(span.numpy.pi * progress))


def slanted(step, span: Span):
    """Falls linearly from the end of the warm-up: ULMFiT's slanted triangular schedule (arXiv:1801.06146, section 3.2),
    which rises from 1 / RATIO of the peak, and falls back to it."""
    return 1 - share_of_steps(step, span)


def inverse_sqrt(step, span: Span):
    """Falls by the square root of the steps."""
    return span.numpy.sqrt(span.first / span.numpy.maximum(step, span.first))


def constant(step, span: Span):
    """Stays at the peak."""
    return span.numpy.ones_like(step)


def wsd(step, span: Span):
    """Warm-up, stable, decay (arXiv:2404.06395): falls by 1 - sqrt(progress) in the last `decay` steps
    (arXiv:2405.18392, section 4), measured in tokens. A decay that is longer than the steps after the warm-up starts
    there."""
    start = max(span.warmup, span.total - span.decay)
    return 1 - span.numpy.sqrt(share_of_tokens(step, start, span.total, span))


SHAPES = {
    "linear": linear,
    "cosine": cosine,
    "slanted": slanted,
    "inverse_sqrt": inverse_sqrt,
    "constant": constant,
    "wsd": wsd,
}


def share_of_steps(step, span: Span):
    """Returns the share of the steps after the warm-up that are before `step`."""
    return (step - span.warmup) / max(1, span.total - span.warmup)


def share_of_tokens(step, start: int, end: int, span: Span):
    """Returns the share of the tokens of the steps start to end - 1 that are in those before `step`. If `end` is after
    the run, its last phase goes on."""
    parts = []
    for phase in span.phases:
        first = max(start, phase.first)
        stop = end if phase is span.phases[-1] else min(end, phase.stop)
        if first < stop:
            parts.append((first, stop, (stop - first) * phase.batch * phase.length))
    total = sum(tokens for *_, tokens in parts)
    share = span.numpy.zeros_like(step)
    for first, stop, tokens in parts:
        share += tokens / total * span.numpy.clip((step - first) / (stop - first), 0, 1)
    return share

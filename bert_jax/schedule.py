"""Learning-rate schedules, in steps."""

import jax.numpy as jnp


def make(name: str, peak: float, warmup: int, total: int, numpy=jnp):
    """step (from 0) -> rate, for a run of `total` steps.

    During the warm-up it is peak * step / warmup, so the first update has rate zero, as the original's has.
    `linear` falls from step 0 and is only replaced by the warm-up, so the rate drops where that ends: the original's.
    The others start at the peak where the warm-up ends.

    numpy: which computes it. What jax.numpy computes waits for the steps in flight.
    """

    def linear(step):
        return 1 - step / total

    def cosine(step):
        progress = (step - warmup) / max(1, total - warmup)
        return 0.5 * (1 + numpy.cos(numpy.pi * numpy.clip(progress, 0, 1)))

    def inverse_sqrt(step):
        return numpy.sqrt(max(1, warmup) / numpy.maximum(step, max(1, warmup)))

    def constant(step):
        return numpy.ones_like(step)

    shape = dict(linear=linear, cosine=cosine, inverse_sqrt=inverse_sqrt, constant=constant)[name]

    def rate(step):
        step = numpy.asarray(step, numpy.float32)
        rising = step / max(1, warmup)
        return peak * numpy.where(step < warmup, rising, numpy.maximum(shape(step), 0.0))

    return rate

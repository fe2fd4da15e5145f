"""Adaptive computation time (arXiv:1603.08983): each token decides after how many passes through a network it halts.

N passes, at least 1.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

EPSILON = 0.01  # a token halts as soon as the sum of its halting probabilities exceeds 1 - EPSILON


class Halting(NamedTuple):
    """How the passes of tokens end."""

    weights: jax.Array  # float32[N, ...], of the state after each pass; they add up to 1
    passes: jax.Array  # float32[...], passes until the token has halted
    remainder: jax.Array  # float32[...], the weight of the last one of these

    @property
    def ponder(self):
        """The cost of the passes, float32[...]: their number, and the remainder, through which it has a gradient
        (equation 12)."""
        return self.passes + self.remainder


def halting(probabilities: list) -> Halting:
    """Returns how tokens halt.

    probabilities: float32[...] of each pass. After the last one, all tokens have halted.
    """
    total = jnp.zeros_like(probabilities[0])
    passes = total
    remainder = total
    is_running = jnp.ones_like(total, bool)
    weights = []
    for number, probability in enumerate(probabilities, 1):
        is_last = (total + probability > 1 - EPSILON) | (number == len(probabilities))
        ends = is_running & is_last
        goes_on = is_running & ~is_last
        weights.append(jnp.where(ends, 1 - total, jnp.where(goes_on, probability, 0.0)))
        remainder = jnp.where(ends, 1 - total, remainder)
        passes += is_running
        total += jnp.where(goes_on, probability, 0.0)
        is_running = goes_on
    return Halting(jnp.stack(weights), passes, remainder)

"""Positions as sines and cosines (arXiv:1706.03762, section 3.5)."""

import jax.numpy as jnp

SLOWEST_WAVE = 10_000.0  # of the slowest component, in radians per position: its reciprocal


def sinusoids(positions, width: int):
    """Maps int32[...] to float32[..., width].

    Components 2i and 2i + 1 are the sine and the cosine of the position divided by 10,000^(2i / width). An odd width
    lacks the last cosine.
    """
    rates = SLOWEST_WAVE ** (-jnp.arange(0, width, 2, dtype=jnp.float32) / width)
    radians = positions[..., None] * rates
    waves = jnp.stack([jnp.sin(radians), jnp.cos(radians)], axis=-1)
    return waves.reshape(*positions.shape, -1)[..., :width]

"""Rotary positions (arXiv:2104.09864).

B batch, L length, H heads, K head size.
"""

from functools import partial

import jax
import jax.numpy as jnp


def angles(positions, size: int, base: float):
    """Returns the cosines and sines float32[B, L, K/2] of the angles of rows.

    positions: int32[B, L]. size: K. The angle of pair i of a vector's components is position / base^(2i / K).
    """
    rates = base ** (-jnp.arange(0, size, 2, dtype=jnp.float32) / size)

    def computed(positions, rates):
        radians = positions[..., None] * rates
        return jnp.cos(radians), jnp.sin(radians)

    def in_loop(positions, rates):
        # Outside of a loop, XLA's CPU backend computes cosines in each product that reads them, for each head. A loop
        # of one turn, for rates that cannot be halved, is right but no faster.
        parts = rates.reshape(2 if size % 4 == 0 else 1, -1)
        halves = jax.lax.map(partial(computed, positions), parts)
        return tuple(jnp.concatenate(each, axis=-1) for each in halves)

    return jax.lax.platform_dependent(positions, rates, cpu=in_loop, default=computed)


def rotate(x_BLHK, cosines, sines):
    """Rotates the pairs of components (i, i + K/2) of each vector by `angles`; computed in float32."""
    cosines, sines = cosines[:, :, None], sines[:, :, None]
    first, second = jnp.split(x_BLHK.astype(jnp.float32), 2, axis=-1)
    turned = first * cosines - second * sines, second * cosines + first * sines
    return jnp.concatenate(turned, axis=-1).astype(x_BLHK.dtype)

"""Rotary positions (arXiv:2104.09864).

B batch, L length, H heads, K head size.
"""

from functools import partial

import jax
import jax.numpy as jnp

BASE = 10_000.0  # of the original


def angles(positions, size: int, base: float):
    """Returns the cosines and sines float32[B, L, K/2] of the angles of rows.

    positions: int32[B, L]. size: K. The angle of pair i of a vector's components is position / base^(2i / K).
    """
    rates = base ** (-jnp.arange(0, size, 2, dtype=jnp.float32) / size)

    def compute(positions, rates):
        radians = positions[..., None] * rates
        return jnp.cos(radians), jnp.sin(radians)

    def compute_in_loop(positions, rates):
        # Outside of a loop, XLA's CPU backend computes cosines in each product that reads them, for each head. A loop
        # of one turn, for rates that cannot be halved, is right but no faster.
        turns = 2 if size % 4 == 0 else 1
        cosines, sines = jax.lax.map(partial(compute, positions), rates.reshape(turns, -1))
        return jnp.concatenate(cosines, axis=-1), jnp.concatenate(sines, axis=-1)

    return jax.lax.platform_dependent(positions, rates, cpu=compute_in_loop, default=compute)


def rotate(x_BLHK, cosines, sines):
    """Rotates the pairs of components (i, i + K/2) of each vector by `angles`; computed in float32."""
    cosines = cosines[:, :, None]
    sines = sines[:, :, None]
    first, second = jnp.split(x_BLHK.astype(jnp.float32), 2, axis=-1)
    rotated_first = first * cosines - second * sines
    rotated_second = second * cosines + first * sines
    return jnp.concatenate([rotated_first, rotated_second], axis=-1).astype(x_BLHK.dtype)

"""Rotary positions (arXiv:2104.09864).

B batch, L length, H heads, K head size.
"""

import jax
import jax.numpy as jnp
import numpy as np


def angles(positions, size: int, base: float):
    """Returns the cosines and sines float32[B, L, K/2] of the angles of rows.

    positions: int32[B, L], less than L. size: K. The angle of pair i of a vector's components is
    position / base^(2i / K).
    """
    rates = np.float32(base) ** (-np.arange(0, size, 2, dtype=np.float32) / size)

    def computed(positions, numpy=jnp):
        radians = positions[..., None] * rates
        return numpy.cos(radians), numpy.sin(radians)

    def looked_up(positions):
        # XLA's CPU backend would compute cosines in each product that reads them, for each head.
        tables = computed(np.arange(positions.shape[1], dtype=np.float32), np)
        return tuple(
            jnp.asarray(table).at[positions].get(mode="promise_in_bounds") for table in tables
        )

    return jax.lax.platform_dependent(positions, cpu=looked_up, default=computed)


def rotate(x_BLHK, cosines, sines):
    """Rotates the pairs of components (i, i + K/2) of each vector by `angles`; computed in float32."""
    cosines, sines = cosines[:, :, None], sines[:, :, None]
    first, second = jnp.split(x_BLHK.astype(jnp.float32), 2, axis=-1)
    turned = first * cosines - second * sines, second * cosines + first * sines
    return jnp.concatenate(turned, axis=-1).astype(x_BLHK.dtype)

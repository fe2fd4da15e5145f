"""The vector of a text, of the vectors of its tokens.

B batch, L length, S packed sequences per row, D width.
"""

import jax.numpy as jnp

from bert_jax.layers.dense import MASKED

# summary: the network's own, by its method `summary`. first: the vector of [CLS]. mean, max: of the tokens' vectors.
# concat: first, mean and max, one after the other.
POOLS = ("summary", "first", "mean", "max", "concat")


def pool(network, x, batch, name: str):
    """Returns [B, S, D], or [B, S, 3 D] for concat: the vector of each packed sequence, from its vectors x[B, L, D].

    name: of POOLS. Padding does not count.
    """
    if name == "summary":
        return network.summary(x, batch)
    return reduce(x, batch, name)


def reduce(x, batch, name: str):
    """Returns what `pool` does, for a name that needs no network."""
    positions = batch["cls_positions"]
    first = jnp.take_along_axis(x, positions[..., None], axis=1)
    numbers = 1 + jnp.arange(positions.shape[1])[:, None]
    is_member = (batch["sequence_ids"][:, None] == numbers)[..., None]  # [B, S, L, 1]
    count = jnp.maximum(is_member.sum(axis=2), 1)
    mean = jnp.where(is_member, x[:, None], 0).sum(axis=2, dtype=jnp.float32) / count
    largest = jnp.where(is_member, x[:, None], MASKED).max(axis=2)
    vectors = {"first": first, "mean": mean.astype(x.dtype), "max": largest}
    if name == "concat":
        return jnp.concatenate(list(vectors.values()), axis=-1)
    return vectors[name]

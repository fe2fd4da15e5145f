"""The vector of a text, of the vectors of its tokens.

B batch, L length, S packed sequences per row, D width.
"""

import jax.numpy as jnp

from bert_jax.layers.dense import MASKED

# summary: the network's own, by its method `summary`; of a causal network last, which alone has seen the whole text.
# first, last: the vector of [CLS], of the last token. mean, max: of the tokens' vectors. concat: first (of a causal
# network last), mean and max, one after the other.
POOLS = ("summary", "first", "last", "mean", "max", "concat")


def pool(network, x, batch, name: str):
    """Returns [B, S, D], or [B, S, 3 D] for concat: the vector of each packed sequence, from its vectors x[B, L, D].

    name: of POOLS. Padding does not count.
    """
    is_causal = getattr(network, "causal", False)
    if name != "summary":
        return reduce(x, batch, name, is_causal)
    if is_causal:
        return reduce(x, batch, "last")
    return network.summary(x, batch)


def reduce(x, batch, name: str, is_causal: bool = False):
    """Returns what `pool` does, for a name that needs no network. is_causal: whether that of x is."""
    positions = batch["cls_positions"][..., None]
    first = jnp.take_along_axis(x, positions, axis=1)
    numbers = 1 + jnp.arange(positions.shape[1])[:, None]
    is_member = (batch["sequence_ids"][:, None] == numbers)[..., None]  # [B, S, L, 1]
    count = jnp.maximum(is_member.sum(axis=2), 1)
    mean = jnp.where(is_member, x[:, None], 0).sum(axis=2, dtype=jnp.float32) / count
    largest = jnp.where(is_member, x[:, None], MASKED).max(axis=2)
    last = jnp.take_along_axis(x, positions + count - 1, axis=1)
    vectors = {"first": first, "last": last, "mean": mean.astype(x.dtype), "max": largest}
    if name != "concat":
        return vectors[name]
    outer = last if is_causal else first
    return jnp.concatenate([outer, vectors["mean"], largest], axis=-1)

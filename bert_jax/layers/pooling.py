"""The vector of a text, of the vectors of its tokens.

B batch, L length, S packed sequences per row, D width.
"""

import jax.numpy as jnp

from bert_jax.errors import BadInput
from bert_jax.layers.dense import MASKED

# summary: the network's own, by its method `summary`. first, last: the vector of [CLS], of the last token. mean, max:
# of the tokens' vectors. concat: first (of a causal network last), mean and max, one after the other.
POOLS = ("summary", "first", "last", "mean", "max", "concat")


def pool(network, x, batch, name: str):
    """Returns [B, S, D], or [B, S, 3 D] for concat: the vector of each packed sequence, from its vectors x[B, L, D].

    name: of POOLS. Padding does not count.
    """
    if name == "summary":
        return network.summary(x, batch)
    return reduce(x, batch, name, network.causal)


def check(network, name: str, key: str) -> None:
    """Raises BadInput, with the key, if a causal network has no such vector."""
    if network.causal and name == "first":
        raise BadInput(f"{key}=first: with causal attention it sees no other token; use last")


def reduce(x, batch, name: str, is_causal: bool = False):
    """Returns what `pool` does, for a name that needs no network. is_causal: whether that of x is; then first is last,
    which alone has seen the whole text."""
    positions = batch["cls_positions"][..., None]
    first = jnp.take_along_axis(x, positions, axis=1)
    numbers = 1 + jnp.arange(positions.shape[1])[:, None]
    is_member = (batch["sequence_ids"][:, None] == numbers)[..., None]  # [B, S, L, 1]
    count = jnp.maximum(is_member.sum(axis=2), 1)
    mean = jnp.where(is_member, x[:, None], 0).sum(axis=2, dtype=jnp.float32) / count
    largest = jnp.where(is_member, x[:, None], MASKED).max(axis=2)
    last = jnp.take_along_axis(x, positions + count - 1, axis=1)
    if is_causal:
        first = last
    vectors = {
        "first": first,
        "last": last,
        "mean": mean.astype(x.dtype),
        "max": largest,
    }
    if name != "concat":
        return vectors[name]
    return jnp.concatenate([first, vectors["mean"], largest], axis=-1)

"""Which of a row's pairs is at a place of the row (TensorFlow).

B rows, L length, N places, S pairs a row at most, one behind the other. With one pair a row there is nothing to find
out, and what belongs to the pair is broadcast.
"""

import tensorflow as tf


def owners(ends, places):
    """int[B, S], int[B or 1, N] -> int32[B, N]: the pair at each place, counted from 0; the last one behind all.

    ends: where each pair ends in its row; one that is not there ends where it begins. None where S is 1.
    """
    sequences = ends.shape[1]
    if sequences == 1:
        return None
    places = tf.broadcast_to(places, [tf.shape(ends)[0], tf.shape(places)[1]])
    return tf.minimum(tf.searchsorted(ends, places, side="right"), sequences - 1)


def at(values, owner):
    """[B, S, ...] -> [B, N, ...], or [B, 1, ...] where S is 1: of each place's pair."""
    return values if owner is None else tf.gather(values, owner, batch_dims=1)

"""The split of a document is a function of its text."""

import numpy as np
import pytest

from bert_jax.data.preparation.encode import text_hash
from bert_jax.data.preparation.splits import COPY, HELDOUT, assign


def hashes_of(texts) -> np.ndarray:
    digests = b"".join(text_hash([text]) for text in texts)
    return np.frombuffer(digests, "<u8").reshape(-1, 2)


@pytest.mark.parametrize("share, held_out", [(0.0, 2), (0.1, 10), (0.995, 98)])
def test_copies_share_a_split_and_the_share_is_of_distinct_documents(share, held_out):
    texts = [f"text {number}" for number in range(100)]
    states = {
        drop: assign(hashes_of(texts + texts[::2]), share, drop, {}) for drop in (True, False)
    }
    first, copies = states[True][:100], states[True][100:]
    assert (copies == COPY).all() and (first == HELDOUT).sum() == held_out
    np.testing.assert_array_equal(states[False], [*first, *first[::2]])

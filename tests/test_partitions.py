"""What is added to partitions comes back: all of it, sorted by first bits, once."""

import numpy as np

from bert_jax.data.preparing.partitions import Partitions


def test_records_come_back_in_the_order_of_their_first_bits(tmp_path):
    values = np.random.default_rng(0).integers(0, 2**64, (1000, 2), dtype=np.uint64)
    values[:3, 0] = 0, 2**64 - 1, 2**63
    with Partitions(tmp_path / "p", 2) as partitions:
        for part in np.array_split(values, 7):
            partitions.add(*part.T)
    parts = list(partitions)
    assert len(parts) > 1 and not (tmp_path / "p").exists()
    for one, other in zip(parts, parts[1:], strict=False):
        assert not len(one) or not len(other) or one[:, 0].max() < other[:, 0].min()
    assert sorted(map(tuple, np.concatenate(parts))) == sorted(map(tuple, values))

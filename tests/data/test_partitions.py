"""What is written to partitions comes back: all of it, by first bits, in the order of the writers."""

import numpy as np
import pytest

from bert_jax.data.preparation import partitions


@pytest.mark.parametrize("records", [1, 1000, 100_000])
def test_records_come_back_in_the_order_of_their_first_bits(tmp_path, monkeypatch, records):
    monkeypatch.setattr(partitions, "RECORDS", 200)
    values = np.random.default_rng(0).integers(0, 2**64, (1000, 2), dtype=np.uint64)
    values[:3, 0] = 0, 2**64 - 1, 2**63
    values[:, 1] = np.arange(1000)  # in the order of the writers
    made = partitions.make(tmp_path / "p", 2, records)
    assert len(made.parts) == {1: 1, 1000: 8, 100_000: 512}[records]
    for writer, part in enumerate(np.array_split(values, 7)):
        made.write(writer, list(part.T[:, :3]))
        made.write(writer, list(part.T))  # as an engine does that has lost an answer
    parts = [made.read(part) for part in made.parts]
    for one, other in zip(parts, parts[1:], strict=False):
        assert not len(one) or not len(other) or one[:, 0].max() < other[:, 0].min()
    assert all((np.diff(part[:, 1].astype(np.int64)) > 0).all() for part in parts)
    assert sorted(map(tuple, np.concatenate(parts))) == sorted(map(tuple, values))


def test_what_a_writer_has_not_finished_is_not_read(tmp_path):
    made = partitions.make(tmp_path / "p", 1, 1)
    made.write(0, [np.arange(5, dtype=np.uint64)])
    (made.directory / "000001.half.writing").write_bytes(b"x")
    assert made.read(0)[:, 0].tolist() == [0, 1, 2, 3, 4]

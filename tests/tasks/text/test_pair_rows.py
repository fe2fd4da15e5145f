"""Sentence pairs compared with a plain implementation of the original algorithm (kits/original.py)."""

import hashlib

import numpy as np
import pytest
from kits.original import HashDraws, original
from kits.small import small_config
from kits.stores import make_store, random_documents

from bert_jax import prng
from bert_jax.errors import BadInput
from bert_jax.tasks.text import pair_rows, sentence_pairs

RULES = pair_rows.Rules(seed=5, phase=1, length=40, special=3, pair_task="nsp", short_rate=0.3)


def numbered(documents):
    """Replaces every token by its position in the split."""
    following = iter(range(10**9))
    return [[[next(following) for _ in s] for s in document] for document in documents]


def make_split(path, number, **shape):
    documents = numbered(random_documents(number, **shape))
    return documents, make_store(path, documents, vocabulary=1 << 20).splits["train"]


def build(split, rules, epoch=0):
    return pair_rows.unpack(np.concatenate(list(pair_rows.build(split, rules, epoch))))


def owners(split, starts):
    """Returns the document of each token position."""
    return np.searchsorted(split.sentence_ends[split.document_ends - 1], starts, side="right")


@pytest.mark.parametrize("pairs", ["nsp", "sop", "none"])
@pytest.mark.parametrize("length", [5, 12, 41, 64, 2000])
def test_rows_equal_the_originals_for_the_same_draws(tmp_path, pairs, length):
    documents, split = make_split(tmp_path / "store", 60)
    rules = RULES._replace(pair_task=pairs, length=length, special=3 - (pairs == "none"))
    made = build(split, rules, epoch=3)
    expected = original(documents, rules, HashDraws(split, rules, 3))
    assert len(made) == len(expected)
    popped_front = popped = 0
    for row, (a, b, label, whole_a, whole_b) in zip(made, expected, strict=True):
        assert (row[1], row[3], row[4]) == (len(a), len(b), label)
        for start, size, whole in ((row[0], row[1], whole_a), (row[2], row[3], whole_b)):
            if size:
                assert whole[0] <= start and start + size <= whole[-1] + 1
                popped_front += start - whole[0]
                popped += len(whole) - size
    assert abs(popped_front - popped / 2) <= 2.5 * popped**0.5


def regular_documents(number):
    """Returns documents of sizes that do not change with library versions."""
    sizes = [[1 + (7 * d + 13 * s) % 20 for s in range(1 + 11 * d % 20)] for d in range(number)]
    return [[[5] * size for size in document] for document in sizes]


def test_rows_do_not_change_between_versions(tmp_path):
    """Compares the SHA-256 of the index with a recorded one."""
    split = make_store(tmp_path / "store", regular_documents(60)).splits["train"]
    sha = hashlib.sha256()
    for epoch in (0, 3):
        for pairs in ("nsp", "sop", "none"):
            rules = RULES._replace(pair_task=pairs, special=3 - (pairs == "none"))
            for part in pair_rows.build(split, rules, epoch):
                sha.update(part.tobytes())
    assert sha.hexdigest() == "9861e53dbb1b03e3e2d54ce001e730a0bccf4bcb426f00b9b347fd9e38a5c549"


@pytest.mark.parametrize("pairs", ["nsp", "sop"])
def test_a_random_b_is_from_the_same_source(tmp_path, pairs):
    """A B in another language would give away the label. A source of one document is the exception."""
    numbers = {"train": [3, 1, 4], "heldout": [1, 1, 0]}
    split = make_store(tmp_path / "store", random_documents(8, 3), sources=numbers).splits["train"]
    seen = np.zeros((8, 8), int)
    for epoch in range(100):
        made = build(split, RULES._replace(pair_task=pairs), epoch)
        a, b = owners(split, made[:, 0]), owners(split, made[:, 2])
        np.add.at(seen, (a[a != b], b[a != b]), 1)
    source = np.repeat(np.arange(3), numbers["train"])
    expected = (source[:, None] == source) & ~np.eye(8, dtype=bool)
    expected[3] = np.arange(8) != 3
    np.testing.assert_array_equal(seen > 0, expected)


def test_rows_do_not_depend_on_the_blocks(tmp_path, monkeypatch):
    numbers = {"train": [40, 20], "heldout": [1, 1]}
    documents = random_documents(60)
    split = make_store(tmp_path / "store", documents, sources=numbers).splits["train"]
    expected = np.concatenate(list(pair_rows.build(split, RULES, 0)))
    monkeypatch.setattr(pair_rows.documents, "BLOCK", 7)
    parts = list(pair_rows.build(split, RULES, 0))
    assert len(parts) > 20
    np.testing.assert_array_equal(np.concatenate(parts), expected)


def test_coins_are_fair():
    keys = prng.mix(np.arange(20_000, dtype=np.uint32))
    for tosses in (1, 32, 33, 1024, 1025, 50_000):
        heads = pair_rows.fair_coins(keys, np.full(len(keys), tosses))
        assert abs(heads.mean() - tosses / 2) < 4 * (tosses / 4 / len(keys)) ** 0.5
        assert abs(heads.var() / (tosses / 4) - 1) < 0.06
        assert heads.min() >= 0 and heads.max() <= tosses


@pytest.mark.parametrize("length", [4, 1 << 16])
def test_lengths_that_have_no_pairs_or_exceed_the_index_are_refused(length):
    config = small_config()
    sentence_pairs.check(config)
    config.phases.main.length = length
    with pytest.raises(BadInput, match=f"phases.main.length={length}"):
        sentence_pairs.check(config)

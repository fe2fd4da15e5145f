"""Rows against a plain, sentence by sentence, token by token account of the original algorithm
(FACTS, "Data")."""

import hashlib

import numpy as np
import pytest
from kits.original import HashDraws, RandomDraws, flat, original
from kits.stores import make_store, random_documents

from bert_jax import prng
from bert_jax.data import memory_map, rows
from bert_jax.errors import BadInput


def numbered(documents):
    """The same documents with every token's id its number in the split, so that tokens tell their
    place."""
    following = iter(range(10**9))
    return [
        [[next(following) for _ in sentence] for sentence in document] for document in documents
    ]


def make_world(path, number, seed=0, **shape):
    documents = numbered(random_documents(number, seed, **shape))
    store = make_store(path, documents, vocabulary=1 << 20)
    return documents, store.splits["train"]


def build(split, rules, epoch=0):
    return rows.unpack(np.concatenate(list(rows.build(split, rules, epoch))))


RULES = rows.Rules(seed=5, phase=1, length=40, pairs="nsp", short_rate=0.3)


@pytest.mark.parametrize("pairs", rows.PAIRS)
@pytest.mark.parametrize("length", [5, 12, 41, 64, 2000])
def test_rows_are_the_originals_given_the_same_draws(tmp_path, pairs, length):
    documents, split = make_world(tmp_path / "store", 60)
    rules = RULES._replace(pairs=pairs, length=length)
    made = build(split, rules, epoch=3)
    expected = original(documents, rules, HashDraws(split, rules, 3))
    assert len(made.label) == len(expected) == rows.count(split, rules, 3)
    popped_front = popped = 0
    for row, (a, b, label, whole_a, whole_b) in zip(zip(*made, strict=True), expected, strict=True):
        assert (row[1], row[3], row[4]) == (len(a), len(b), label)
        for start, size, whole in ((row[0], row[1], whole_a), (row[2], row[3], whole_b)):
            if size:
                assert whole[0] <= start and start + size <= whole[-1] + 1
                popped_front += start - whole[0]
                popped += len(whole) - size
    assert abs(popped_front - popped / 2) <= 2.5 * popped**0.5


def test_statistics_are_the_originals(tmp_path):
    """Row number, lengths, share of random B and of short rows, against the original's own
    generator."""
    documents, split = make_world(tmp_path / "store", 400)
    rules = RULES._replace(length=64, short_rate=0.1)

    def measure(made):
        a, b, label = (np.asarray(x, float) for x in made)
        return [len(a), a.mean(), b.mean(), (a + b).std(), label.mean(), (a + b < 20).mean()]

    ours = np.array(
        [
            measure((made.a_length, made.b_length, made.label))
            for made in (build(split, rules, epoch) for epoch in range(12))
        ]
    )
    theirs = np.array(
        [
            measure(
                list(
                    zip(
                        *(
                            (len(a), len(b), label)
                            for a, b, label, *_ in original(documents, rules, RandomDraws(seed))
                        ),
                        strict=True,
                    )
                )
            )
            for seed in range(12)
        ]
    )
    error = np.sqrt((ours.var(0) + theirs.var(0)) / 11)
    assert (abs(ours.mean(0) - theirs.mean(0)) < 4 * error).all(), (ours.mean(0), theirs.mean(0))
    assert (
        ours[:, 4].min() > 0.5
    )  # more than half, because a chunk of one sentence is always random
    assert not (build(split, rules, 0).a_length[:50] == build(split, rules, 1).a_length[:50]).all()


@pytest.mark.parametrize("pairs", ["nsp", "sop"])
def test_random_b_is_from_any_other_document(tmp_path, pairs):
    documents, split = make_world(tmp_path / "store", 7, sentences=6)
    ends = split.sentence_ends[split.document_ends - 1]
    seen = np.zeros((7, 7), int)
    for epoch in range(200):
        made = build(split, RULES._replace(pairs=pairs), epoch)
        a, b = (
            np.searchsorted(ends, start, side="right") for start in (made.a_start, made.b_start)
        )
        assert (np.searchsorted(ends, made.a_start + made.a_length) == a).all()
        assert (np.searchsorted(ends, made.b_start + made.b_length) == b).all()
        assert (a == b)[made.label == 0].all()
        if pairs == "nsp":
            assert (a != b)[made.label == 1].all()
        np.add.at(seen, (a[a != b], b[a != b]), 1)
    shares = seen / seen.sum(1, keepdims=True)
    bound = 4.5 * np.sqrt(1 / 6 * 5 / 6 / seen.sum(1, keepdims=True))
    assert (abs(shares - 1 / 6) < bound)[~np.eye(7, dtype=bool)].all()


def hashed_documents(number):
    """Documents made by our own hash, which stays what it is when a library's generator changes."""

    def size(draw, most):
        return 1 + int(prng.below(prng.mix(np.full(1, draw, np.uint32)), most)[0])

    return [
        [
            [5 + (7 * d + 3 * s + w) % 900 for w in range(size(10_000 + 50 * d + s, 20))]
            for s in range(size(d, 20))
        ]
        for d in range(number)
    ]


@pytest.mark.parametrize("weights", [(), (1,), (1.0,)])
def test_rows_are_what_they_have_always_been(tmp_path, weights):
    """Every bit, where all sources are read once: weights came later."""
    split = make_store(tmp_path / "store", hashed_documents(60)).splits["train"]
    sha = hashlib.sha256()
    for epoch in (0, 3):
        for pairs in rows.PAIRS:
            for part in rows.build(split, RULES._replace(pairs=pairs, weights=weights), epoch):
                sha.update(part.tobytes())
    assert sha.hexdigest() == "71d1a073baf8f7df4465c6321aac0d736c696d574bf11ac05ce766dee7275432"


def owners(split, starts):
    """The documents in which these tokens are."""
    return np.searchsorted(split.sentence_ends[split.document_ends - 1], starts, side="right")


def test_documents_are_used_as_often_as_their_weight_says(tmp_path):
    """Without cuts each use of a document gives as many tokens as it has."""
    numbers, weights = {"train": [30, 0, 50], "heldout": [1, 1, 1]}, (2.25, 9.0, 0.6)
    documents = random_documents(80)
    split = make_store(tmp_path / "store", documents, sources=numbers).splits["train"]
    rules = RULES._replace(pairs="none", length=5000, short_rate=0.0, weights=weights)
    sizes = np.array([len(flat(document)) for document in documents])
    used = []
    for epoch in range(200):
        made = build(split, rules, epoch)
        tokens = np.bincount(owners(split, made.a_start), made.a_length, minlength=80)
        assert (tokens % sizes == 0).all()
        used.append(tokens // sizes)
    used = np.array(used)
    assert set(used[:, :30].flat) == {2, 3} and set(used[:, 30:].flat) == {0, 1}
    for part, weight in ((used[:, :30], 2.25), (used[:, 30:], 0.6)):
        expected = weight * part.shape[1]  # in each epoch
        assert set(part.sum(1)) <= {np.floor(expected), np.ceil(expected)}
        uses = np.cumsum(part, axis=0)  # of each document, up to each epoch
        assert (abs(uses - weight * np.arange(1, 201)[:, None]) < 1).all()
        assert len(np.unique(part[:20], axis=1).T) > 3  # not all in the same epochs


def test_every_use_is_cut_anew(tmp_path):
    _, split = make_world(tmp_path / "store", 60)
    thrice = build(split, RULES._replace(weights=(3,)))
    parts = list(rows.build(split, RULES._replace(weights=(3,)), 0))
    assert len(parts) == 3
    once = np.concatenate(list(rows.build(split, RULES, 0)))
    np.testing.assert_array_equal(parts[0], once)  # the first use is what it is without weights
    seen = [set(map(tuple, part.tolist())) for part in parts]
    for left, right in ((0, 1), (0, 2), (1, 2)):
        assert len(seen[left] & seen[right]) < 0.2 * len(once)
    assert abs(len(thrice.label) - 3 * len(once)) < 0.1 * len(once)


@pytest.mark.parametrize("pairs", ["nsp", "sop"])
def test_random_b_is_of_the_same_source(tmp_path, pairs):
    """In another language it would tell that it is random. A source of one document has no other."""
    numbers = {"train": [3, 1, 4], "heldout": [1, 1, 0]}
    split = make_store(tmp_path / "store", random_documents(8, 3), sources=numbers).splits["train"]
    seen = np.zeros((8, 8), int)
    for epoch in range(100):
        made = build(split, RULES._replace(pairs=pairs, weights=(2, 3, 1)), epoch)
        a, b = owners(split, made.a_start), owners(split, made.b_start)
        np.add.at(seen, (a[a != b], b[a != b]), 1)
        if pairs == "nsp":
            assert (a != b)[made.label == 1].all()
    source = np.repeat(np.arange(3), numbers["train"])
    expected = (source[:, None] == source) & ~np.eye(8, dtype=bool)
    expected[3] = np.arange(8) != 3
    np.testing.assert_array_equal(seen > 0, expected)


def test_sop_swaps_half_of_the_pairs(tmp_path):
    _, split = make_world(tmp_path / "store", 800)
    made = build(split, RULES._replace(pairs="sop", short_rate=0.0))
    follows, swapped = made.a_start < made.b_start, made.label == 1
    assert follows[~swapped].all()
    ends = split.sentence_ends[split.document_ends - 1]
    same = np.searchsorted(ends, made.a_start, "right") == np.searchsorted(
        ends, made.b_start, "right"
    )
    assert not follows[same & swapped].any()
    assert abs(swapped[same].mean() - 0.5) < 4 * 0.5 / same.sum() ** 0.5


def test_every_token_is_used_once_where_nothing_is_cut(tmp_path):
    _, split = make_world(tmp_path / "store", 50)
    for pairs in rows.PAIRS:
        made = build(split, RULES._replace(pairs=pairs, length=5000, short_rate=0.0))
        used = np.zeros(len(split.tokens), int)
        for a_start, a_length, b_start, b_length, label in zip(*made, strict=True):
            used[a_start : a_start + a_length] += 1
            if not label or (pairs == "sop" and b_start + b_length == a_start):
                used[b_start : b_start + b_length] += 1
        assert (used == 1).all(), pairs


@pytest.mark.parametrize("weights", [(), (1.5, 2.25)])
def test_rows_do_not_depend_on_the_blocks_nor_on_the_slices(tmp_path, monkeypatch, weights):
    numbers = {"train": [40, 20], "heldout": [1, 1]}
    documents = random_documents(60)
    split = make_store(tmp_path / "store", documents, sources=numbers).splits["train"]
    rules = RULES._replace(weights=weights)
    expected = np.concatenate(list(rows.build(split, rules, 0)))
    monkeypatch.setattr(rows, "BLOCK", 7)
    monkeypatch.setattr(memory_map, "SLICE", 100)  # parts of a file between two looks at the memory
    monkeypatch.setattr(memory_map, "LIMIT", 0)  # everything is given back each time
    parts = list(rows.build(split, rules, 0))
    assert len(parts) > 20
    # The copies of a document follow one another in each block.
    places = [np.lexsort(index.T) for index in (np.concatenate(parts), expected)]
    np.testing.assert_array_equal(np.concatenate(parts)[places[0]], expected[places[1]])
    if not weights:
        np.testing.assert_array_equal(np.concatenate(parts), expected)


def test_one_sentence_longer_than_everything(tmp_path):
    documents = numbered([[[0] * 300_000, [0] * 5], [[0] * 4]])
    split = make_store(tmp_path / "store", documents, vocabulary=1 << 20).splits["train"]
    starts = []
    for epoch in range(200):
        made = build(split, RULES._replace(short_rate=0.0), epoch)
        assert (made.a_length + made.b_length <= 37).all() and (made.a_length > 0).all()
        starts.append(made.a_start[0])
    assert (
        abs(np.mean(starts) - 150_000) < 4 * 274 / 200**0.5
    )  # the front is cut as often as the back
    assert 274 * 0.7 < np.std(starts) < 274 * 1.3


def test_coins_are_fair():
    keys = prng.mix(np.arange(20_000, dtype=np.uint32))
    for tosses in (1, 31, 32, 33, 100, 1024, 1025, 50_000):
        heads = rows.fair_coins(keys, np.full(len(keys), tosses))
        assert abs(heads.mean() - tosses / 2) < 4 * (tosses / 4 / len(keys)) ** 0.5
        assert abs(heads.var() / (tosses / 4) - 1) < 0.06
        assert heads.min() >= 0 and heads.max() <= tosses


def test_bad_input(tmp_path):
    split = make_store(tmp_path / "store", random_documents(1), random_documents(1)).splits["train"]
    with pytest.raises(BadInput, match="1 documents, pairs 'nsp' needs at least 2"):
        rows.check_rules(split, RULES)
    rows.check_rules(split, RULES._replace(pairs="none"))
    for change in (dict(length=4), dict(length=70_000), dict(short_rate=1.5), dict(pairs="both")):
        with pytest.raises(BadInput, match=str(*change.values())):
            rows.check_rules(split, RULES._replace(**change))


def test_weights_that_cannot_be(tmp_path):
    store = make_store(tmp_path / "store", random_documents(4))
    for weights in ((1.0, 2.0), (0.0,), (-1.0,), (float("inf"),)):
        with pytest.raises(BadInput, match=r"config.corpus.weights=.*for each of 1 sources"):
            rows.check_rules(store.splits["train"], RULES._replace(weights=weights))
    with pytest.raises(BadInput, match="an epoch would use no document of .*train"):
        rows.check_rules(store.splits["train"], RULES._replace(weights=(0.24,)))
    rules = RULES._replace(weights=(0.25,))
    rows.check_rules(store.splits["train"], rules)
    assert all(rows.count(store.splits["train"], rules, epoch) for epoch in range(50))


def test_a_sample_has_the_rows_of_its_documents(tmp_path):
    _, split = make_world(tmp_path / "store", 300)
    every = build(split, RULES)
    for field, whole in zip(rows.sample(split, RULES, 4, 10_000), every, strict=True):
        np.testing.assert_array_equal(field, whole)
    some = rows.sample(split, RULES, 8, 50)
    assert 8 < len(some.label) < len(every.label)
    assert set(zip(*some, strict=True)) <= set(zip(*every, strict=True))
    found = owners(split, some.a_start)
    assert found.min() == 0 and found.max() > 250  # spread over all documents

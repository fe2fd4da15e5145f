"""Near duplicates: the estimate is Jaccard's similarity, and what is as similar is found."""

import random

import numpy as np
import pytest

from bert_jax.data.preparation import near, shards, stages


def documents_of(number: int, words: int, seed: int = 0) -> list[list[int]]:
    draw = random.Random(seed)
    return [draw.choices(range(5, 1000), k=words) for _ in range(number)]


def changed(document: list[int], share: float, seed: int) -> list[int]:
    draw = random.Random(seed)
    return [draw.randrange(5, 1000) if draw.random() < share else word for word in document]


def jaccard(one: list[int], other: list[int]) -> float:
    one, other = (
        {tuple(ids[k : k + near.SHINGLE]) for k in range(len(ids) - near.SHINGLE + 1)}
        for ids in (one, other)
    )
    return len(one & other) / len(one | other)


def signatures(documents: list[list[int]]) -> np.ndarray:
    lengths = [len(document) for document in documents]
    return near.signatures(np.concatenate(documents).astype(np.uint16), np.cumsum(lengths))


def similar(tmp_path, parts: list[list], threshold: float, alive=None) -> list[int]:
    """Of documents in several shards."""
    found = shards.Shards()
    for number, documents in enumerate(parts):
        path = tmp_path / f"{number}.shard"
        shards.write(path, {"signatures": signatures(documents)}, {})
        found.append(path, 0, {"kept": len(documents), "counts": {}, "problems": {}})
    steps = stages.Stages(map, found.groups(), tmp_path)
    alive = steps.leave(np.ones(found.documents, bool) if alive is None else alive)
    return sorted(near.similar(steps, alive, threshold, found.documents).tolist())


def test_signatures_estimate_jaccard():
    documents = documents_of(60, words=400)
    copies = [changed(document, 0.03, seed) for seed, document in enumerate(documents)]
    estimates = (signatures(documents) == signatures(copies)).mean(axis=1)
    truth = [jaccard(*pair) for pair in zip(documents, copies, strict=True)]
    errors = estimates - truth
    assert np.abs(errors).max() < 4 * 0.045 and abs(errors.mean()) < 4 * 0.045 / 60**0.5
    assert 0.6 < min(truth) and max(truth) < 0.95


def test_a_signature_depends_on_the_document_alone():
    documents = documents_of(3, words=700)  # more than are added at a time
    one, *_ = signatures([*documents[:1]])
    assert np.array_equal(signatures(documents[::-1])[2], one)
    counting = signatures([list(range(5, 705))])[0]
    assert counting[:2].tolist() == [2807994, 329555]  # in every version, on every machine


def test_short_documents_have_signatures_of_their_own():
    values = signatures([[7, 8], [7, 9], [7, 8], [7, 8, 9, 10, 11]])
    assert np.array_equal(values[0], values[2])
    assert (values[0] == values[1]).sum() == (values[0] == values[3]).sum() == 0


def test_later_ones_of_similar_documents_are_found(tmp_path):
    documents = documents_of(200, words=300)
    copies = [changed(document, 0.01, seed) for seed, document in enumerate(documents[:50])]
    assert similar(tmp_path, [documents, copies], 0.7) == list(range(200, 250))
    assert similar(tmp_path, [copies, documents], 0.7) == list(range(50, 100))
    assert similar(tmp_path, [documents], 0.1) == []


def test_what_is_less_similar_is_kept(tmp_path):
    documents = documents_of(50, words=300)
    copies = [changed(document, 0.04, seed) for seed, document in enumerate(documents)]
    assert 0.45 < min(map(jaccard, documents, copies)) < max(map(jaccard, documents, copies)) < 0.82
    assert similar(tmp_path, [documents, copies], 0.92) == []
    assert similar(tmp_path, [documents, copies], 0.3) == list(range(50, 100))


def test_documents_left_out_before_count_for_nothing(tmp_path):
    first, *_ = documents_of(1, words=300)
    alive = np.array([False, True, True])
    assert similar(tmp_path, [[first], [first], [first]], 0.9, alive) == [2]


def test_many_equal_documents_are_one(tmp_path):
    """Work grows with their number, not its square: two thousand would be two million pairs."""
    first, *_ = documents_of(1, words=50)
    assert similar(tmp_path, [[first] * 2000], 0.9) == list(range(1, 2000))
    records = np.stack([np.zeros(2000, np.uint64), np.arange(2000, dtype=np.uint64)], axis=1)
    assert len(near.candidates(records)[0]) < 10 * 2000


@pytest.mark.parametrize("threshold", [0.1, 0.5, 0.8, 0.9, 1.0])
def test_bands_leave_few_unseen(threshold):
    bands, rows = near.banding(threshold)
    assert bands * rows <= near.PERMUTATIONS
    assert 1 - (1 - threshold**rows) ** bands >= near.FOUND

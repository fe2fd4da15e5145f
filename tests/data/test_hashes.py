"""Fingerprints: equal for equal ids, different for others, and the same in every version."""

import numpy as np

from bert_jax.data.preparation import hashes

TOKENS = np.random.default_rng(0).integers(0, 9, 3000).astype(np.uint16)
LENGTHS = np.random.default_rng(1).integers(1, 6, 1000)
LENGTHS = LENGTHS[: np.searchsorted(np.cumsum(LENGTHS), len(TOKENS))]
TOKENS = TOKENS[: LENGTHS.sum()]


def parts(tokens, lengths) -> list[tuple]:
    return [tuple(part.tolist()) for part in np.split(tokens, np.cumsum(lengths)[:-1])]


def check(found: list, keys: list) -> None:
    """As many different hashes as contents, and one for each content."""
    assert len(set(found)) == len(set(keys)) == len(set(zip(found, keys, strict=True)))
    assert len(set(keys)) < len(keys)  # some are equal, or nothing was tested


def test_sentences_documents_and_windows_have_the_hash_of_their_ids():
    check(hashes.sentences(TOKENS, LENGTHS).tolist(), parts(TOKENS, LENGTHS))
    documents = hashes.documents(TOKENS, np.cumsum(LENGTHS))
    check([tuple(row) for row in documents.tolist()], parts(TOKENS, LENGTHS))
    windows = np.lib.stride_tricks.sliding_window_view(TOKENS, 3)
    check(hashes.windows(TOKENS, 3).tolist(), [tuple(row) for row in windows.tolist()])
    check(hashes.rows(windows, salt=0).tolist(), [tuple(row) for row in windows.tolist()])


def test_the_type_of_ids_does_not_count():
    wide = TOKENS.astype(np.uint32)
    assert np.array_equal(hashes.sentences(TOKENS, LENGTHS), hashes.sentences(wide, LENGTHS))
    ends = np.cumsum(LENGTHS)
    assert np.array_equal(hashes.documents(TOKENS, ends), hashes.documents(wide, ends))
    assert np.array_equal(hashes.windows(TOKENS, 3), hashes.windows(wide, 3))


def test_bands_of_equal_rows_differ():
    rows = np.arange(6).reshape(3, 2)
    assert not set(hashes.rows(rows, salt=0).tolist()) & set(hashes.rows(rows, salt=1).tolist())


def test_mixing_is_splitmix():
    """The first outputs of SplitMix64 with seed 0, as published with xoshiro's reference code."""
    states = np.arange(1, 4, dtype=np.uint64) * hashes.GOLDEN
    expected = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert hashes.mix(states).tolist() == expected


def test_of_nothing():
    none = np.zeros(0, np.uint16)
    assert hashes.sentences(none, none).shape == hashes.windows(TOKENS[:2], 3).shape == (0,)
    assert hashes.documents(none, none).shape == (0, 2)

"""Fingerprints: equal for equal ids, different for others, and the same in every version."""

import numpy as np

from bert_jax.data.preparation import hashes

LENGTHS = np.random.default_rng(1).integers(1, 6, 900)
TOKENS = np.random.default_rng(0).integers(0, 9, LENGTHS.sum()).astype(np.uint16)


def check(found: np.ndarray, contents) -> None:
    """As many different hashes as contents, and one for each content."""
    found, contents = found.tolist(), [tuple(part.tolist()) for part in contents]
    pairs = set(zip(map(str, found), contents, strict=True))
    assert len(set(map(str, found))) == len(set(contents)) == len(pairs)
    assert len(set(contents)) < len(contents)  # some are equal, or nothing was tested


def test_sentences_documents_and_windows_have_the_hash_of_their_ids():
    ends = np.cumsum(LENGTHS)
    for tokens in (TOKENS, TOKENS.astype(np.uint32)):
        check(hashes.sentences(tokens, LENGTHS), np.split(TOKENS, ends[:-1]))
        check(hashes.documents(tokens, ends), np.split(TOKENS, ends[:-1]))
        windows = np.lib.stride_tricks.sliding_window_view(TOKENS, 3)
        check(hashes.windows(tokens, 3), windows)


def test_mixing_is_splitmix():
    """The first outputs of SplitMix64 with seed 0, as published with xoshiro's reference code."""
    states = np.arange(1, 4, dtype=np.uint64) * hashes.GOLDEN
    expected = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert hashes.mix(states).tolist() == expected

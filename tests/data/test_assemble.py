"""Rows of any frame of special tokens are those that `Frame.wrap` makes, one text at a time."""

import numpy as np
import pytest

from bert_jax.data import assemble
from bert_jax.tokenizers.special_tokens import BERT_FRAME, parse_frame

SPECIAL = {"pad": 0, "cls": 2, "sep": 3, "mask": 4, "end": 5}
FRAMES = {
    "BERT": BERT_FRAME,
    "RoBERTa": "cls | sep sep | sep",
    "XLNet": "| sep | sep cls:2",
    "a source": "| | sep",
    "fine-tuned GPT": "cls | sep | end",
    "none": "| |",
}
TOKENS = np.arange(100, 400, dtype=np.int32)
LENGTH = 60


def frame_of(name):
    return parse_frame(FRAMES[name]).ids(SPECIAL)


def as_rows(rows: list[list[tuple]]) -> dict[str, np.ndarray]:
    """Returns the arrays of rows of sequences (ids, segments)."""
    arrays = {name: np.zeros((len(rows), LENGTH), int) for name in ("tokens", "segments")}
    arrays |= {name: np.zeros((len(rows), LENGTH), int) for name in ("positions", "sequence_ids")}
    for number, sequences in enumerate(rows):
        start = 0
        for sequence, (ids, segments) in enumerate(sequences, 1):
            place = number, slice(start, start + len(ids))
            arrays["tokens"][place] = ids
            arrays["segments"][place] = segments
            arrays["positions"][place] = np.arange(len(ids))
            arrays["sequence_ids"][place] = sequence
            start += len(ids)
    return arrays


def check(actual: dict, expected: dict) -> None:
    for name, array in expected.items():
        np.testing.assert_array_equal(actual[name].numpy(), array, err_msg=name)


@pytest.mark.parametrize("paired", [False, True], ids=["texts", "pairs"])
@pytest.mark.parametrize("name", FRAMES)
def test_packed_texts_have_their_frame(name, paired):
    frame = frame_of(name)
    draw = np.random.default_rng(0)
    pairs = np.zeros((20, 4, 5), int)
    rows = []
    for row in pairs:
        count = draw.integers(1, 4)  # the fourth is always absent
        row[:count, [0, 2]] = draw.integers(0, 280, (count, 2))
        row[:count, [1, 3]] = draw.integers(1, 7, (count, 2)) * [1, paired]
        chosen = [
            (TOKENS[a : a + m], TOKENS[b : b + n])[: 1 + paired] for a, m, b, n, _ in row[:count]
        ]
        rows.append([frame.wrap(*texts) for texts in chosen])
    arrays = assemble.gather(TOKENS, pairs, LENGTH, frame, SPECIAL["pad"], paired)
    check(arrays, as_rows(rows))
    sizes = (arrays["maskable"].numpy()).sum(axis=1)
    assert sizes.tolist() == pairs[..., [1, 3]].sum(axis=(1, 2)).tolist()


@pytest.mark.parametrize("name", ["BERT", "RoBERTa", "fine-tuned GPT"])
def test_documents_of_a_range_have_their_frames(name):
    """A row is the stream of documents from a place to another, with all of a frame between two of them."""
    frame = frame_of(name)
    sizes = np.array([4, 9, 1, 30, 6, 2, 50])
    ends = np.cumsum(sizes)
    separators = ends + frame.size() * np.arange(len(ends))
    starts = separators - sizes
    ranges = []
    rows = []
    for first, last, skipped, cut in ((0, 2, 1, 0), (1, 3, 3, 20), (4, 5, 0, 1), (3, 3, 2, 5)):
        start = starts[first] + skipped
        stop = separators[last] - cut
        ranges.append([start, stop - start])
        documents = []
        for number in range(first, last + 1):
            begin = ends[number] - sizes[number] + skipped * (number == first)
            documents.append(TOKENS[begin : ends[number] - cut * (number == last)])
        rows.append([frame.wrap(document) for document in documents])
    arrays = assemble.gather_range(
        TOKENS, separators, np.array(ranges), LENGTH, frame, SPECIAL["pad"], sequences=4
    )
    expected = as_rows(rows)
    del expected["segments"]
    check(arrays, expected)


def test_a_vocabulary_may_lack_special_tokens():
    frame = parse_frame("cls | sep | end")
    assert frame.ids({"sep": 3, "cls": None}).wrap([7], [8]) == ([7, 3, 8, 3], [0, 0, 1, 1])
    assert frame.size() == 2 and frame.size(2) == 3
    assert parse_frame("| |").wrap([7]) == ([7], [0])

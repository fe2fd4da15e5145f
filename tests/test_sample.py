"""The vocabulary's text is spread over everything, and no more than asked for."""

from typing import NamedTuple

from bert_jax.data import corpus
from bert_jax.data.preparing import sample


class Source(NamedTuple):
    """A source of one-document blocks."""

    texts: list[str]
    reading: corpus.Reading = corpus.Reading("lines", "lines")

    def blocks(self, problems):
        return ([text.encode()] for text in self.texts)


SOURCES = [
    Source([f"document {number:03d}" for number in range(300)]),
    Source([f"document {number:03d}" for number in range(300, 1000)]),
]


def test_evenly_over_all_sources():
    numbers = [int(text.split()[1]) for text in sample.sample(SOURCES, 3000)]
    assert numbers == list(range(0, 1000, numbers[1])) and 100 < len(numbers) <= 3000 // 12


def test_all_of_a_small_corpus_and_one_block_of_a_large_one():
    assert len(sample.sample(SOURCES, 10**9)) == 1000
    assert sample.sample(SOURCES, 1) == ["document 000"]

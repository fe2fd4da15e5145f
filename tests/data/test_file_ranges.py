"""Where texts lie: many processes find the blocks that one process reads in order."""

import gzip
from collections import Counter

import pytest
from kits.corpora import make_text, small_parts, write

from bert_jax import config as configs
from bert_jax.data import corpus
from bert_jax.data.preparation import file_ranges, sample


@pytest.fixture
def sources(tmp_path, monkeypatch):
    """Two sources: plain, compressed and empty files, and one with a line that is left out."""
    small_parts(monkeypatch)
    for number in (0, 1, 4):
        write(tmp_path / f"text/{number}.txt", make_text(40, seed=number))
    write(tmp_path / "text/2.txt", b"")
    write(tmp_path / "text/3.txt", ["one\n" + "x" * 2_000_000 + "\nand then", "it was not"])
    write(tmp_path / "more.gz", gzip.compress("\n\n".join(make_text(60, seed=9)).encode()))
    names = f"corpus.source={tmp_path}/text,{tmp_path}/more.gz"
    return corpus.open_sources(configs.load("demo", [names, "corpus.format=lines"]))


def test_blocks_are_those_of_a_source_that_is_read_in_order(sources, tmp_path, monkeypatch):
    """Workers may be in another directory; plain files are not copied."""
    monkeypatch.chdir(tmp_path)
    relative = [
        source._replace(paths=tuple(path.relative_to(tmp_path) for path in source.paths))
        for source in sources
    ]
    texts, problems = file_ranges.cut_all(relative, tmp_path, map)
    monkeypatch.chdir("/")
    expected = Counter()
    for source, found in zip(sources, texts, strict=True):
        blocks = list(source.blocks(expected))
        assert [file_ranges.read(block) for block in found.blocks()] == blocks and len(blocks) > 3
        assert [file_ranges.length(block) for block in found.blocks()] == [
            len(b"".join(b)) for b in blocks
        ]
    assert problems == expected == Counter({"lines over 1 MB": 1})
    assert len(list(tmp_path.glob("*.text"))) == 2 and len(texts[0].spans) == 5


def test_a_sample_is_spread_evenly_over_all_sources(sources, tmp_path):
    texts, _ = file_ranges.cut_all(sources, tmp_path, map)
    every = [file_ranges.read(block) for found in texts for block in found.blocks()]
    taken = [file_ranges.read(block) for _, block in sample.sample(texts, 9000)]
    stride = every.index(taken[1])
    assert taken == every[::stride] and 1 < stride < 9
    assert sum(len(b"".join(block)) for block in taken) <= 9000
    assert sample.choose([12] * 1000, 10**9) == list(range(1000))
    assert sample.choose([12] * 1000, 1) == [0]

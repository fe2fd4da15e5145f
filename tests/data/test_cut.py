"""Where texts lie, as many processes find it: the blocks of a source that is read from its beginning to its end."""

import gzip
from collections import Counter

import pytest
from kits.corpora import make_text

from bert_jax import config as configs
from bert_jax.data import corpus
from bert_jax.data.preparation import cut
from bert_jax.errors import BadInput


@pytest.fixture
def sources(tmp_path, monkeypatch):
    """Two sources of several files: plain, compressed, empty, and one with a line that is left out."""
    monkeypatch.setattr(corpus, "BLOCK", 1000)
    monkeypatch.setattr(cut, "PART", 3000)
    for number in range(5):
        path = tmp_path / "text" / f"{number}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n\n".join(make_text(40, seed=number)))
    (tmp_path / "text" / "2.txt").write_text("")
    with open(tmp_path / "text" / "3.txt", "a") as file:
        file.write("\n" + "x" * 2_000_000 + "\nand then\n\nit was not")
    with gzip.open(tmp_path / "more.gz", "wb") as file:
        file.write("\n\n".join(make_text(60, seed=9)).encode())
    names = f"corpus.source={tmp_path}/text,{tmp_path}/more.gz"
    return corpus.open_sources(configs.load("demo", [names, "corpus.format=lines"]))


def test_blocks_are_those_of_a_source_that_is_read_in_order(sources, tmp_path):
    texts, problems = cut.cut_all(sources, tmp_path, map)
    expected = Counter()
    for source, found in zip(sources, texts, strict=True):
        blocks = list(source.blocks(expected))
        assert [cut.read(block) for block in found.blocks()] == blocks and len(blocks) > 3
        assert [cut.length(block) for block in found.blocks()] == [len(b"".join(b)) for b in blocks]
    assert problems == expected == Counter({"lines over 1 MB": 1})
    # Only what does not lie in a file as it is read is written.
    written = sorted(path.name for path in tmp_path.glob("*.text"))
    assert len(written) == 2 and {len(found.spans) for found in texts} == {5, 1}


def test_workers_may_be_in_another_directory(sources, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    relative = [
        source._replace(paths=tuple(path.relative_to(tmp_path) for path in source.paths))
        for source in sources
    ]
    texts, _ = cut.cut_all(relative, tmp_path, map)
    monkeypatch.chdir("/")
    assert [list(map(cut.read, found.blocks())) for found in texts] == [
        list(source.blocks(Counter())) for source in sources
    ]


def test_a_file_that_has_become_shorter_is_bad_input(sources, tmp_path):
    texts, _ = cut.cut_all(sources, tmp_path, map)
    path = sources[0].paths[0]
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(BadInput, match="0.txt: the text has changed while it was read"):
        [cut.read(block) for block in texts[0].blocks()]

"""An existing directory at config.store: a finished store is kept, anything else is refused unchanged."""

import functools
import shutil
from pathlib import Path

import pytest
from kits import corpora
from kits.corpora import make_text, prepare

from bert_jax.data import store as stores
from bert_jax.data.preparation import prepare as preparing
from bert_jax.errors import BadInput
from bert_jax.tasks.feed import open_or_prepare
from bert_jax.tokenizers import tokenizer as tokenizers

TEXTS = make_text(50)


@pytest.fixture
def make(tmp_path):
    return functools.partial(corpora.config_of, tmp_path)


def test_a_finished_store_is_reused(make, tmp_path):
    """It is kept if its text files are deleted. It is in the target of a link."""
    (tmp_path / "store").symlink_to(tmp_path / "elsewhere")
    made = preparing.prepare(make(TEXTS), lambda line: None)
    store = stores.open_store(tmp_path / "elsewhere")
    times = {path: path.stat().st_mtime_ns for path in store.path.rglob("*")}
    report = preparing.prepare(make(TEXTS, "corpus.workers=2"), lambda line: None)
    assert report == {key: made[key] for key in report} and report["train"]
    assert {path: path.stat().st_mtime_ns for path in store.path.rglob("*")} == times
    config = make(TEXTS)
    Path(config.corpus.source).unlink()
    assert prepare(config).fingerprint == store.fingerprint


@pytest.fixture
def places(make, tmp_path, monkeypatch):
    """{spelling: whether it is the text of a store, the directory `text`}, with the working directory above it."""
    monkeypatch.chdir(tmp_path)
    for name, texts in (("a.txt", TEXTS[:25]), ("b.txt", TEXTS[25:])):
        corpora.write(tmp_path / "text" / name, texts)
    prepare(make([], "corpus.source=text"))
    shutil.copytree("text", "elsewhere/copy")
    Path("link").symlink_to("text")
    shutil.copytree("text", "edited")
    Path("edited/b.txt").write_text(Path("edited/b.txt").read_text().swapcase())
    Path("swapped").mkdir()
    shutil.copy("text/a.txt", "swapped/b.txt")
    shutil.copy("text/b.txt", "swapped/a.txt")
    same = {name: True for name in ("text", "text/*.txt", f"{tmp_path}/text", "elsewhere", "link")}
    return same | dict.fromkeys(["edited", "swapped", "text/a.txt", "missing", "pydocs"], False)


def test_another_spelling_of_the_same_text_is_the_same_store(make, places, tmp_path):
    """Other text of the same size, files in another order, or none to compare are refused."""
    one = stores.open_store(tmp_path / "store")
    for spelling, is_same in places.items():
        config = make([], f"corpus.source={spelling}")
        if is_same:
            store, changed = preparing.open_matching(config)
            assert store.fingerprint == one.fingerprint and not changed
            other = prepare(make([], f"corpus.source={spelling}", "store=other"))
            assert other.fingerprint == one.fingerprint
            shutil.rmtree(other.path)
        else:
            with pytest.raises(BadInput, match=f"corpus.source='{spelling}': .* built from 'text'"):
                preparing.open_matching(config)


def test_edited_text_is_told_in_one_line(make, places):
    """`prepare` refuses it; a run goes on with the store. A text that was only touched is the same."""
    config, path, lines = make([], "corpus.source=text"), Path("text/a.txt"), []
    path.touch()
    open_or_prepare(config, lines.append)
    assert not lines
    path.write_text(path.read_text().swapcase())
    open_or_prepare(config, lines.append)
    assert len(lines) == 1 and lines[0].startswith("config.corpus.source=text: changed since")
    with pytest.raises(BadInput, match="config.corpus.source=text: changed since"):
        prepare(config)


def test_files_that_are_left_out_belong_to_the_text_of_a_store(make, places):
    """A store without the key is the same as before the key existed."""
    key = "filter.unusable_files"
    store = prepare(make([], "corpus.source=text"))
    assert key not in store.manifest["made_from"]
    Path("elsewhere/copy/c.txt").write_bytes("Die Stra\xdfe.\n".encode("latin-1") * 9)
    config = make([], "corpus.source=elsewhere", f"{key}=True", "store=other")
    other = prepare(config)
    assert other.splits["train"].tokens.tolist() == store.splits["train"].tokens.tolist()
    report = corpora.report_of(other)
    assert report["problems"]["files left out"] == 1
    assert report["unusable_files"] == ["elsewhere/copy/c.txt"]
    _, changed = preparing.open_matching(config)
    assert not changed


@pytest.mark.parametrize(
    "change",
    ["corpus.heldout=0.2", "corpus.source=pydocs", "filter.line_stops=True", "tokenizer.size=201"],
)
def test_a_store_of_another_config_is_refused(make, change):
    prepare(make(TEXTS))
    for function in (prepare, preparing.open_matching):
        with pytest.raises(BadInput, match=change.partition("=")[0]):
            function(make(TEXTS, change))


def test_a_vocabulary_is_compared_by_content_and_case(make, tmp_path, monkeypatch):
    """The config of an exported and imported run names the store's own vocabulary file."""
    monkeypatch.setenv("HOME", str(tmp_path))
    tokenizer = tokenizers.train("wordpiece", TEXTS, 150, True)
    tokenizer.save(tmp_path / "words")
    path = "tokenizer.path=~/words/vocab.txt"
    store = prepare(make(TEXTS, path, "store=~/store"))
    assert store.path == tmp_path / "store"
    own = f"tokenizer.path={store.path}/tokenizer/vocab.txt"
    preparing.open_matching(make(TEXTS, own, "tokenizer.size=9"))
    with pytest.raises(BadInput, match="tokenizer.path.*tokenizer.lowercase") as error:
        preparing.open_matching(make(TEXTS, path, "tokenizer.lowercase=False"))
    assert tokenizer.fingerprint[:9] not in str(error.value)
    (tmp_path / "words/vocab.txt").write_text("\n".join([*tokenizer.pieces[:-1], "another"]))
    with pytest.raises(BadInput, match="tokenizer.path"):
        preparing.open_matching(make(TEXTS, path))

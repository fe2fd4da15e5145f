"""An existing directory at config.store: a finished store is kept, anything else is refused unchanged."""

import functools
from pathlib import Path

import pytest
from kits import corpora
from kits.corpora import make_text, prepare

from bert_jax.data import prepare as preparing
from bert_jax.data import store as stores
from bert_jax.errors import BadInput
from bert_jax.tokenizers import tokenizer as tokenizers

TEXTS = make_text(50)


@pytest.fixture
def make(tmp_path):
    return functools.partial(corpora.config_of, tmp_path)


def test_a_finished_store_is_reused(make):
    """It is kept if its text files are deleted, and refused if they have changed."""
    made = preparing.prepare(make(TEXTS), lambda line: None)
    store = stores.open_store(make(TEXTS).store)
    times = {path: path.stat().st_mtime_ns for path in store.path.rglob("*")}
    report = preparing.prepare(make(TEXTS, "corpus.workers=2"), lambda line: None)
    assert report == {key: made[key] for key in report} and report["recommendation"]
    assert {path: path.stat().st_mtime_ns for path in store.path.rglob("*")} == times
    with pytest.raises(BadInput, match="corpus.source"):
        prepare(make([*TEXTS, "more text"]))
    config = make(TEXTS)
    Path(config.corpus.source).unlink()
    assert prepare(config).fingerprint == store.fingerprint


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
    with pytest.raises(BadInput, match="tokenizer.path"):
        preparing.open_matching(make(TEXTS, path, "tokenizer.lowercase=False"))
    (tmp_path / "words/vocab.txt").write_text("\n".join([*tokenizer.pieces[:-1], "another"]))
    with pytest.raises(BadInput, match="tokenizer.path"):
        preparing.open_matching(make(TEXTS, path))


@pytest.mark.parametrize("target_exists", [True, False])
def test_a_link_is_followed(make, tmp_path, target_exists):
    """The store is written to the target of the link, an empty directory or none."""
    if target_exists:
        (tmp_path / "elsewhere").mkdir()
    (tmp_path / "store").symlink_to(tmp_path / "elsewhere")
    assert prepare(make(TEXTS)).fingerprint == prepare(make(TEXTS)).fingerprint
    assert (tmp_path / "store").is_symlink() and (tmp_path / "elsewhere/manifest.json").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus.txt", "elsewhere", "store"]

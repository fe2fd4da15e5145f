"""What lies at config.store: a finished store is kept, another one refused, anything else left alone."""

import functools
import json
from pathlib import Path

import pytest
from kits import corpora
from kits.corpora import make_text, prepare, report_of, two_sources

from bert_jax.data import prepare as preparing
from bert_jax.data import store as stores
from bert_jax.errors import BadInput
from bert_jax.tokenizers import tokenizer as tokenizers


@pytest.fixture
def make(tmp_path):
    return functools.partial(corpora.config_of, tmp_path)


def test_a_finished_store_is_kept(make):
    texts = make_text(50)
    made = preparing.prepare(make(texts), lambda line: None)
    store = stores.open_store(make(texts).store)
    times = {path: path.stat().st_mtime_ns for path in store.path.rglob("*")}
    lines = []
    report = preparing.prepare(make(texts, "corpus.workers=2"), log=lines.append)
    assert report == {key: made[key] for key in report}
    assert "already prepared, from this text as far as names and sizes tell" in lines[0]
    assert {path: path.stat().st_mtime_ns for path in store.path.rglob("*")} == times
    with pytest.raises(BadInput, match="names files 1, bytes"):
        prepare(make([*texts, "more text"]))
    config = make(texts)
    Path(config.corpus.source).unlink()  # a store outlives its text
    assert prepare(config).fingerprint == store.fingerprint


def test_a_kept_store_shows_the_report_of_its_config(make, tmp_path):
    """As if it had been made for these weights and this objective; what is stored depends on neither."""
    keys = "corpus.weights=(3,1)", "objective.pairs=none", "objective.masking=whole_word"
    other = two_sources(make, tmp_path, *keys, f"store={tmp_path / 'other'}")
    made = preparing.prepare(other, lambda line: None)
    store = prepare(two_sources(make, tmp_path))
    kept = preparing.prepare(two_sources(make, tmp_path), lambda line: None)
    for key in ("commonest_pieces", "sources", "recommendation"):
        assert kept[key] != made[key]
    kept = preparing.prepare(two_sources(make, tmp_path, *keys), lambda line: None)
    assert kept == {key: made[key] for key in kept}
    assert report_of(store) == json.loads((tmp_path / "other" / "report.json").read_text())


def test_a_store_of_something_else_is_refused(make, tmp_path):
    texts = make_text(50)
    config = make(texts)
    prepare(config)
    assert preparing.open_or_refuse(config).manifest["splits"]["heldout"]["documents"] == 5
    assert prepare(make(texts, "corpus.weights=(2.0,)", "corpus.data_dir=elsewhere"))
    tokenizers.train("wordpiece", texts[:5], 60, True).save(tmp_path)
    for override, message in [
        ("corpus.heldout=0.2", "config.corpus.heldout 0.1 there, 0.2 asked for"),
        ("corpus.source=pydocs", "config.corpus.source .* there, 'pydocs' asked for"),
        ("filter.repeats=9", "config.filter.repeats 0 there, 9 asked for"),
        ("tokenizer.size=201", "config.tokenizer.size 200 there, 201 asked for"),
        ("tokenizer.lowercase=False", "config.tokenizer.lowercase True there, False asked for"),
        (f"tokenizer.path={tmp_path}/vocab.txt", "config.tokenizer.path not used there"),
    ]:
        for function in (prepare, preparing.open_or_refuse):
            with pytest.raises(BadInput, match=message):
                function(make(texts, override))


def test_the_stores_own_vocabulary_may_be_given(make, tmp_path):
    """As the config of an exported and imported run does."""
    config = make(make_text(50))
    prepare(config)
    own = f"{config.store}/tokenizer/vocab.txt"
    preparing.open_or_refuse(make(make_text(50), f"tokenizer.path={own}", "tokenizer.size=9"))
    with pytest.raises(BadInput, match="config.corpus.heldout"):
        preparing.open_or_refuse(make(make_text(50), f"tokenizer.path={own}", "corpus.heldout=0.2"))


def test_a_vocabulary_counts_by_its_content(make, tmp_path):
    texts = make_text(50)
    tokenizer = tokenizers.train("wordpiece", texts, 150, True)
    tokenizer.save(tmp_path / "a")
    tokenizer.save(tmp_path / "b")
    prepare(make(texts, f"tokenizer.path={tmp_path}/a/vocab.txt"))
    config = make(texts, f"tokenizer.path={tmp_path}/b/vocab.txt")
    preparing.open_or_refuse(config)
    pieces = [*tokenizer.pieces[:-1], "another"]
    (tmp_path / "b" / "vocab.txt").write_text("\n".join(pieces))
    with pytest.raises(BadInput, match="config.tokenizer.path '"):
        preparing.open_or_refuse(config)


def test_what_lies_there_is_not_overwritten(make, tmp_path):
    config = make(make_text(50))
    Path(config.store).mkdir()
    (Path(config.store) / "mine").write_text("mine")
    with pytest.raises(BadInput, match="exists, and is not a token store"):
        prepare(config)
    (Path(config.store) / "mine").unlink()
    assert prepare(config).manifest["vocabulary"]


@pytest.mark.parametrize("there", [True, False])
def test_a_link_is_followed(make, tmp_path, there):
    """The store comes where the link leads, whether there is an empty directory yet or not."""
    if there:
        (tmp_path / "elsewhere").mkdir()
    (tmp_path / "store").symlink_to(tmp_path / "elsewhere")
    config = make(make_text(50))
    store = prepare(config)
    assert prepare(config).fingerprint == store.fingerprint
    assert (tmp_path / "store").is_symlink() and (tmp_path / "elsewhere/manifest.json").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus.txt", "elsewhere", "store"]


def test_a_store_in_the_home_directory(make, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    corpora.write(tmp_path / "corpus.txt", make_text(50))
    tokenizers.train("wordpiece", make_text(50), 150, True).save(tmp_path / "words")
    config = make(make_text(50), "store=~/store", "tokenizer.path=~/words/vocab.txt")
    assert prepare(config).path == tmp_path / "store"


def test_the_case_of_a_given_vocab_is_part_of_the_store(make, tmp_path):
    texts = make_text(200)
    tokenizers.train("wordpiece", texts, 150, True).save(tmp_path / "vocabulary")
    path = f"tokenizer.path={tmp_path}/vocabulary/vocab.txt"
    prepare(make(texts, path))
    with pytest.raises(BadInput, match="config.tokenizer.lowercase True there, False asked for"):
        preparing.open_or_refuse(make(texts, path, "tokenizer.lowercase=False"))

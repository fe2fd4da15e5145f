"""The held-out documents as text: those of the store, all of them, each once, and no other."""

import json

import pytest
from kits import corpora
from kits.corpora import encode_lines, make_text, prepare, read

from bert_jax.data import corpus, heldout_text
from bert_jax.errors import BadInput
from bert_jax.tokenizers import tokenizer as tokenizers


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(corpus, "BLOCK", 1000)


def found(config, store) -> list[str]:
    return ["\n".join(sentences) for sentences in heldout_text.documents(config, store)]


def heldout(store) -> list:
    return sorted(read(store.splits["heldout"]))


def encoded(store, texts: list[str]) -> list:
    encode = tokenizers.load(store.path / "tokenizer").encode
    documents = [[ids for ids in encode_lines(encode, text) if ids] for text in texts]
    return sorted(documents)


@pytest.mark.parametrize("workers", [1, 2])
def test_held_out_documents_as_they_stand(tmp_path, small_blocks, workers):
    """Empty sentences and documents, case, accents and equal documents are met on the way."""
    texts = [text.replace("the", "Th\xe9").replace("cat", "C\xe4t") for text in make_text(200)]
    texts += ["\x07\n\x07", "\x07\na cat\n\x07\nsaw it"] + texts[:40]
    config = corpora.config_of(tmp_path, texts, f"corpus.workers={workers}")
    store = prepare(config)
    shown = found(config, store)
    assert set(shown) <= set(texts) and len(shown) == len(set(shown)) > 15
    assert encoded(store, shown) == heldout(store)
    assert any("Th\xe9" in text and "C\xe4t" in text for text in shown)


def test_sources_come_in_turns(tmp_path, small_blocks):
    second = corpora.write(
        tmp_path / "second.jsonl",
        "\n".join(json.dumps({"text": f"Second. {text}"}) for text in make_text(200, 1)).encode(),
    )
    first = tmp_path / "corpus.txt"
    changes = f"corpus.source={first},{second}", "corpus.format=lines,jsonl"
    config = corpora.config_of(tmp_path, make_text(200), *changes)
    store = prepare(config)
    shown = found(config, store)
    assert encoded(store, shown) == heldout(store)
    of_second = [text.startswith("Second.") for text in shown]
    place = of_second.index(True)
    assert place < of_second.count(False) and False in of_second[place:]


def test_text_is_read_no_further_than_needed(tmp_path, small_blocks, monkeypatch):
    config = corpora.config_of(tmp_path, make_text(300))
    store = prepare(config)
    parsed = []
    documents = corpus.documents
    monkeypatch.setattr(corpus, "documents", lambda *a: parsed.append(a) or documents(*a))
    reader = heldout_text.documents(config, store)
    next(reader)
    few = len(parsed)
    list(reader)
    assert few < len(parsed)


def test_another_text_under_the_same_name(tmp_path):
    config = corpora.config_of(tmp_path, make_text(100))
    store = prepare(config)
    corpora.write(tmp_path / "corpus.txt", make_text(100, seed=1))
    with pytest.raises(BadInput, match=r"corpus\.txt.*no held-out document.*is there"):
        found(config, store)


def test_a_store_made_anew_at_the_same_place(tmp_path):
    """What is remembered of a store belongs to its content, not to its place."""
    first = corpora.config_of(tmp_path, make_text(100))
    found(first, prepare(first))
    (tmp_path / "store").rename(tmp_path / "old")
    second = corpora.config_of(tmp_path, make_text(100, seed=1))
    store = prepare(second)
    assert encoded(store, found(second, store)) == heldout(store)

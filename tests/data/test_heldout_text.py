"""The text of the held-out documents: exactly those of the store, each once."""

import json

import pytest
from kits import corpora
from kits.corpora import encode_lines, make_text, prepare, read

from bert_jax.data.preparation import heldout_text
from bert_jax.data.sources import files
from bert_jax.errors import BadInput
from bert_jax.tokenizers import tokenizer as tokenizers


def found(config, store) -> list[str]:
    """Returns the held-out documents, after checking that they are those of the store."""
    texts = ["\n".join(sentences) for sentences in heldout_text.documents(config, store)]
    encode = tokenizers.load(store.path / "tokenizer").encode
    documents = [[ids for ids in encode_lines(encode, text) if ids] for text in texts]
    assert sorted(documents) == sorted(read(store.splits["heldout"]))
    return texts


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_heldout_documents_are_the_original_text(tmp_path, monkeypatch, workers):
    """The corpus has empty sentences and documents, upper case, accents and equal documents."""
    monkeypatch.setattr(files, "PIECE", 1000)
    texts = [text.replace("the", "Th\xe9").replace("cat", "C\xe4t") for text in make_text(200)]
    texts += ["\x07\n\x07", "\x07\na cat\n\x07\nsaw it"] + texts[:40]
    config = corpora.config_of(tmp_path, texts, f"corpus.workers={workers}")
    shown = found(config, prepare(config))
    assert set(shown) <= set(texts) and len(shown) == len(set(shown)) > 15
    assert any("Th\xe9" in text and "C\xe4t" in text for text in shown)


def test_sources_are_read_in_turn(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "PIECE", 1000)
    records = (json.dumps({"text": f"Second. {text}"}) for text in make_text(200, seed=1))
    second = corpora.write(tmp_path / "second.jsonl", "\n".join(records).encode())
    changes = f"corpus.source={tmp_path}/corpus.txt,{second}", "corpus.format=lines,jsonl"
    config = corpora.config_of(tmp_path, make_text(200), *changes)
    store = prepare(config)
    of_second = [text.startswith("Second.") for text in found(config, store)]
    place = of_second.index(True)
    assert place < of_second.count(False) and False in of_second[place:]


def test_another_text_is_refused(tmp_path):
    config = corpora.config_of(tmp_path, make_text(100))
    store = prepare(config)
    corpora.write(tmp_path / "corpus.txt", make_text(100, seed=1))
    with pytest.raises(BadInput, match="corpus.txt"):
        found(config, store)

"""The charts of a store: lengths, pieces of words and frequent words are counted right."""

import shutil
from types import SimpleNamespace

import numpy as np
from kits.stores import make_store
from kits.texts import PROSE

from bert_jax.pages import corpus
from bert_jax.pages.charts import Figures
from bert_jax.tokenizers import tokenizer as tokenizers

TEXTS = ["the fox jumps, the fox sleeps", "the dog"]


def run_of(store, fingerprint="0123456789abcdef", metrics=None):
    config = SimpleNamespace(store=str(store))
    info = {"store_fingerprint": fingerprint}
    return SimpleNamespace(config=config, info=info, metrics=metrics or {})


def test_lengths_have_all_and_the_longest_in_the_last():
    sizes = np.array([1] * 300 + [50] * 100 + [100_000])
    edges, counts = corpus.lengths(np.cumsum(sizes))
    assert counts.sum() == 401 and edges[0] == 0
    assert counts[np.searchsorted(edges, 1, side="right") - 1] >= 300
    assert counts[-1] >= 1 and edges[-1] < 100


def test_words_are_counted_with_their_pieces():
    tokenizer = tokenizers.train("wordpiece", PROSE, 150, True)
    ids = np.array(sum(tokenizer.encode(TEXTS), []))
    pieces, frequent = corpus.words(ids, tokenizer)
    words = "the fox jumps , the fox sleeps the dog".split()
    sizes = [len(each) for each in tokenizer.encode(words)]
    expected = np.bincount(np.minimum(sizes, corpus.MOST_PIECES), minlength=9)[1:] / len(words)
    np.testing.assert_allclose([*pieces.values()], expected)
    assert [*frequent][:2] == ["the", "fox"]
    np.testing.assert_allclose([frequent["the"], frequent["fox"]], [3 / 9, 2 / 9])


def test_a_store_has_charts_unless_it_is_elsewhere_or_another(tmp_path):
    tokenizer = tokenizers.train("wordpiece", PROSE, 150, True)
    documents = [[tokenizer.encode([text])[0]] * 3 for text in TEXTS * 4]
    make_store(tmp_path / "store", documents, vocabulary=tokenizer.size)
    tokenizer.save(tmp_path / "store/tokenizer")
    figures = Figures()
    assert len(corpus.describe(figures, run_of(tmp_path / "store"))) == len(figures.specs) == 4
    (line,) = corpus.describe(figures, run_of(tmp_path / "store", "another"))
    metrics = {"heldout": {"lm_loss": np.array([5.0, 3 * np.log(2)])}}
    text = corpus.describe(Figures(), run_of(tmp_path / "store", metrics=metrics))[0]
    tokens = np.load(tmp_path / "store/heldout/tokens.npy").tolist()
    share = len(tokens) / len(tokenizer.decode(tokens))
    assert f" {3 * share:.3f} bits a byte" in text
    shutil.rmtree(tmp_path / "store")
    (gone,) = corpus.describe(figures, run_of(tmp_path / "store"))
    assert len(figures.specs) == 4 and line != gone

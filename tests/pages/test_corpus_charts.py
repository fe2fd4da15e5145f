"""The charts of a store: lengths, pieces of words and frequent words are counted right."""

import shutil
from types import SimpleNamespace

import numpy as np
from kits.stores import make_store
from kits.texts import PROSE

from bert_jax.data import store as stores
from bert_jax.pages import corpus
from bert_jax.pages.charts import Figures
from bert_jax.tokenizers import tokenizer as tokenizers

TEXT = "the fox jumps, the fox sleeps, the dog"


def test_lengths_have_all_and_the_longest_in_the_last():
    sizes = np.array([1] * 300 + [50] * 100 + [100_000])
    counts = corpus.lengths(sizes)
    assert sum(counts.values()) == 401 and counts["0 to 2"] == 300
    assert [*counts.values()][-1] == 1
    assert sum(corpus.lengths(np.array([], np.int64)).values()) == 0  # no words are marked


def test_a_store_has_charts_unless_it_is_elsewhere(tmp_path):
    tokenizer = tokenizers.train("wordpiece", PROSE, 150, True)
    documents = [[tokenizer.encode([TEXT])[0]] * 3] * 8
    make_store(tmp_path / "store", documents, vocabulary=tokenizer.size)
    tokenizer.save(tmp_path / "store/tokenizer")
    config = SimpleNamespace(store=str(tmp_path / "store"))
    info = {"store_fingerprint": stores.open_store(tmp_path / "store").fingerprint}
    metrics = {"heldout": {"lm_loss": np.array([5.0, 3 * np.log(2)])}}
    run = SimpleNamespace(config=config, metrics=metrics, info=info)
    figures = Figures()
    line, charts = corpus.describe(figures, run)
    assert charts.count("<figure>") == 4
    tokens = np.load(tmp_path / "store/heldout/tokens.npy").tolist()
    share = len(tokens) / len(tokenizer.decode(tokens))
    assert f" {3 * share:.3f} bits a byte" in line
    *_, pieces, frequent = figures.specs.values()
    shown = {bar["text"]: bar["x"] for bar in frequent["datasets"]["bars"]}
    assert (shown["the"], shown["fox"], shown["dog"]) == (3 * 24, 2 * 24, 23)  # not the last word
    assert sum(bar["x"] for bar in pieces["datasets"]["bars"]) == 10 * 24 - 1
    other = SimpleNamespace(config=config, metrics=metrics, info={"store_fingerprint": "other"})
    assert "not the store of this run" in corpus.describe(figures, other)[0]
    shutil.rmtree(tmp_path / "store")
    assert len(corpus.describe(figures, run)) == 1

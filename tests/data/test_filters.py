"""What is left out and where the rest goes, seen in whole stores."""

import functools
import json
from collections import Counter

import pytest
from kits import corpora
from kits.corpora import make_text, prepare, read

from bert_jax.data import store as stores
from bert_jax.data.preparation.repeats import OFTEN
from bert_jax.tokenizers import tokenizer as tokenizers


@pytest.fixture
def make(tmp_path):
    return functools.partial(corpora.config_of, tmp_path)


def report_of(store) -> dict:
    return json.loads((store.path / "report.json").read_text())


def sentences_of(store, name: str) -> list[list[str]]:
    decode = tokenizers.load(store.path / "tokenizer").decode
    return [[decode(ids) for ids in document] for document in read(store.splits[name])]


def everything(store) -> list[list[str]]:
    return sentences_of(store, "train") + sentences_of(store, "heldout")


def overlap(store) -> set:
    train, heldout = (
        {sum(document, ()) for document in read(store.splits[name])} for name in stores.SPLITS
    )
    return train & heldout


def test_equal_documents_that_are_kept_stay_on_one_side(make):
    texts = make_text(200)
    store = prepare(make(texts * 3, "filter.duplicates=False"))
    counts = Counter(map(str, everything(store)))
    assert set(counts.values()) == {3} and len(counts) == 200
    assert not overlap(store) and len(read(store.splits["heldout"])) == 60
    assert report_of(store)["duplicates"] == 0


def with_menu(texts: list[str], menu: str) -> list[str]:
    """A sentence in front of every document, and one that stands in half of them at the end."""
    return [f"{menu}\n{text}" + "\nthe house" * (n % 2) for n, text in enumerate(texts)]


def test_repeated_sentences_go_from_all_documents(make):
    menu, texts = "house house then house", make_text(60)
    texts = list(dict.fromkeys(texts))
    counts = Counter(line for text in texts for line in text.split("\n"))
    assert max(counts.values()) < 10
    store = prepare(make(with_menu(texts, menu), f"filter.repeats={len(texts) - 1}"))
    found = Counter(sentence for document in everything(store) for sentence in document)
    assert menu not in found and found["the house"] == len(texts) // 2
    assert found == counts + Counter({"the house": len(texts) // 2})
    report = report_of(store)
    assert report["repeated_dropped"] == len(texts)
    assert report["most_repeated"][0] == [len(texts) // 2, "the house"]


def test_only_sentences_that_stand_more_often_go(make):
    texts = with_menu(make_text(60), "house house then house")
    assert report_of(prepare(make(texts, "filter.repeats=60")))["repeated_dropped"] == 0


def test_documents_that_become_empty_or_equal_go(make):
    """Shortened documents are compared again: nothing that is held out stands in the other split."""
    menu, texts = "house house then house", list(dict.fromkeys(make_text(100)))
    shortened = [f"{menu}\n{text}" for text in texts[:40]]
    corpus = texts + shortened + [menu, f"{menu}\n{menu}"]
    store = prepare(make(corpus, "filter.repeats=20", "corpus.heldout=0.5"))
    assert sorted(everything(store)) == sorted(text.split("\n") for text in texts)
    assert not overlap(store)
    report = report_of(store)
    assert report["duplicates"] == 40 and report["repeated_dropped"] == 43
    assert report["problems"] == {"documents of repeated sentences alone": 2}
    kept = f"store={store.path}2"
    kept = prepare(
        make(corpus, "filter.repeats=20", "corpus.heldout=0.5", "filter.duplicates=False", kept)
    )
    assert len(everything(kept)) == 140 and not overlap(kept)


def test_counts_are_of_the_documents_that_are_kept(make):
    """A page that stands a hundred times does not make its sentences repeated ones."""
    texts = make_text(50)
    page = "a page of its own\nand a second line"
    report = report_of(prepare(make(texts + [page] * 200, "filter.repeats=50")))
    assert report["duplicates"] == 199 and report["repeated_dropped"] == 0


def test_the_report_tells_the_share_of_repeated_sentences(make):
    menu, texts = "house house then house", list(dict.fromkeys(make_text(150)))
    store = prepare(make([f"{menu}\n{text}" for text in texts]))
    report = report_of(store)
    train = sentences_of(store, "train")
    ids = tokenizers.load(store.path / "tokenizer").encode([menu])[0]
    assert len(texts) > OFTEN and report["most_repeated"][0] == [len(texts), menu]
    share = len(ids) * len(train) / len(store.splits["train"].tokens)
    assert report["repeated_share"] == pytest.approx(share) and report["repeated_dropped"] == 0


def test_near_duplicates_go(make):
    texts = list(dict.fromkeys(text for text in make_text(400) if len(text.split()) > 25))
    altered = [text + " tree" for text in texts[:20]]
    config = make(altered[:10] + texts + altered[10:], "filter.near_duplicates=0.7")
    store = prepare(config)
    found = sorted(everything(store))
    expected = altered[:10] + texts[10:]  # the earlier one of each pair
    assert found == sorted(text.split("\n") for text in expected)
    assert report_of(store)["near_duplicates"] == 20


def test_all_filters_together_hold_out_the_share_of_what_is_left(make):
    texts = list(dict.fromkeys(text for text in make_text(600) if len(text.split()) > 25))
    texts = [f"house house then house\n{text}" for text in texts]
    altered = [text + " tree" for text in texts[::2]]
    filters = "filter.near_duplicates=0.6", "filter.repeats=20", "corpus.heldout=0.3"
    store = prepare(make(texts * 2 + altered, *filters))
    report, left = report_of(store), len(everything(store))
    assert left == len(texts) == report["repeated_dropped"] == report["duplicates"]
    assert report["near_duplicates"] == len(altered) and not overlap(store)
    assert len(read(store.splits["heldout"])) == round(0.3 * left)

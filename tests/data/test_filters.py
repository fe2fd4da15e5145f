"""Near duplicates and repeated sentences are left out, and what is left is held out apart."""

from kits import corpora
from kits.corpora import make_text, prepare, read, report_of

from bert_jax.data import store as stores
from bert_jax.tokenizers import tokenizer as tokenizers

MENU = "house house then house"


def test_all_filters_together_hold_out_the_share_of_what_is_left(tmp_path):
    """Documents that become empty or equal without their repeated sentences go."""
    texts = list(dict.fromkeys(text for text in make_text(600) if len(text.split()) > 25))
    altered = [f"{MENU}\n{text} tree" for text in texts[::2]]
    longer = [f"{MENU}\n{text}" for text in texts]
    corpus = longer * 2 + altered + texts + [MENU, f"{MENU}\n{MENU}"]
    filters = "filter.near_duplicates=0.6", "filter.repeats=20", "corpus.heldout=0.3"
    store = prepare(corpora.config_of(tmp_path, corpus, *filters))
    decode = tokenizers.load(store.path / "tokenizer").decode
    train, heldout = (
        ["\n".join(map(decode, document)) for document in read(store.splits[name])]
        for name in stores.SPLITS
    )
    assert sorted(train + heldout) == sorted(texts)
    assert len(heldout) == round(0.3 * len(texts))
    report = report_of(store)
    assert report["duplicates"] and report["near_duplicates"] and report["repeated_dropped"]
    assert report["problems"] == {"documents of repeated sentences alone": 2}

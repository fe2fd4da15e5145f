"""The store of labelled examples, made by several processes at the same time."""

import pytest
from kits import labelled

from bert_jax.data import store as stores
from bert_jax.errors import BadInput
from bert_jax.tasks.supervised import examples

WORDS = labelled.tokenizer()


@pytest.mark.parametrize("module, name", [(examples, "read"), (stores, "finish")])
def test_a_store_that_another_run_finishes_first_is_opened(tmp_path, monkeypatch, module, name):
    """While this one reads the examples, or before it renames the directory that it has written."""
    data = labelled.sentences(tmp_path / "data", 20, 20)
    config = labelled.load("glue:sst2", labelled.places("x", data))
    function, others = getattr(module, name), []

    def after_another_run(*arguments):
        if not others:
            others.append(None)
            others[0] = examples.open_or_build(config, WORDS)
        return function(*arguments)

    monkeypatch.setattr(module, name, after_another_run)
    assert examples.open_or_build(config, WORDS).fingerprint == others[0].fingerprint
    assert {path.name for path in data.iterdir()} == {"dev.tsv", "store", "train.tsv"}


def test_a_store_of_other_examples_is_still_refused(tmp_path):
    data = labelled.sentences(tmp_path / "data", 20, 20)
    config = labelled.load("glue:sst2", labelled.places("x", data))
    examples.open_or_build(config, WORDS)
    labelled.sentences(tmp_path / "data", 21, 20)
    with pytest.raises(BadInput, match=r"task\.data"):
        examples.open_or_build(config, WORDS)

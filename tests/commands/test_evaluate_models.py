"""Models on the held-out text of a config: which have not seen it, and which are refused."""

import pytest
from kits import corpora
from kits.runs import untrained
from kits.texts import PROSE

from bert_jax.convert import open_model
from bert_jax.data import store as stores
from bert_jax.errors import BadInput
from bert_jax.inference.evaluate_texts import evaluate_models
from bert_jax.tokenizers import tokenizer as tokenizers


@pytest.fixture(scope="module")
def model():
    trained = tokenizers.train("wordpiece", PROSE, 300, True)
    return untrained(trained, "objective.name=causal_lm", "task.name=token_blocks")


@pytest.fixture
def measure(tmp_path, monkeypatch):
    """measure(**models): the values of `evaluate` for these models on the same text."""
    documents = ["\n".join(PROSE[n : n + 3]) for n in range(0, len(PROSE), 3)]
    config = corpora.config_of(tmp_path, documents, "corpus.heldout=0.5", "evaluate.rows=40")

    def run(**models):
        monkeypatch.setattr(open_model, "open_model", lambda name, overrides: models[name])
        return evaluate_models(list(models), config, lambda line: None)

    return run


def test_only_a_model_of_the_same_store_has_held_out_text(measure, tmp_path, model):
    measure(a=model)
    own = {"store_fingerprint": stores.open_store(tmp_path / "store").fingerprint}
    infos = {"a": {}, "o": own, "e": {"store_fingerprint": "else"}, "i": own | {"imported": {}}}
    models = {name: model._replace(info=info) for name, info in infos.items()}
    rows = measure(**models)["models"]
    assert [row["model"] for row in rows] == ["a", "o", "e", "i"]
    assert [row["held_out"] for row in rows] == [False, True, False, False]
    assert len({row["nats_per_word"] for row in rows}) == 1


def test_a_model_whose_head_is_not_trained_is_refused(measure, model):
    headless = model._replace(step=0, info={"fresh": ["lm"]})
    with pytest.raises(BadInput, match="head 'lm'"):
        measure(h=headless)
    assert measure(h=headless._replace(step=1))["models"]

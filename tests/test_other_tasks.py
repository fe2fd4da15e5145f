"""Runs of the package's other tasks: a causal LM on blocks of text, and masked LM on whole sentences."""

import random

import pytest
from kits import corpora
from kits.malformed_inputs import refused
from kits.runs import lines, load, pretraining
from kits.small import SMALL

from bert_jax.inference import predict
from bert_jax.tasks.feed import open_feed
from bert_jax.train import pretrain

KEYS = {key: value for key, value in SMALL.items() if not key.endswith("max_predictions")}
CAUSAL = {"objective.name": "causal_lm", "task.name": "token_blocks"}
SMALLER = {"model.layers": 1, "model.dropout": 0.0, "model.attention_dropout": 0.0}


def chains(documents: int) -> list[str]:
    """Returns documents in which every word has two successors, each as likely: ln 2 nats per word.

    The words of other tests are independent, so that there is nothing to learn but their frequencies.
    """
    draw = random.Random(0)
    words = corpora.WORDS

    def sentence(at: int) -> str:
        numbers = [at := (2 * at + draw.randrange(2)) % len(words) for _ in range(20)]
        return " ".join(words[number] for number in numbers)

    return ["\n".join(sentence(draw.randrange(20)) for _ in range(4)) for _ in range(documents)]


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    directory = tmp_path_factory.mktemp("other")
    source = corpora.write(directory / "corpus.txt", chains(150))
    return KEYS | {"corpus.source": source, "store": directory / "store"}


@pytest.mark.slow
def test_a_causal_lm_learns(settings, tmp_path):
    """Its held-out loss falls below half the entropy of single tokens.

    `predict` continues texts.
    """
    keys = CAUSAL | SMALLER | {"phases.main.steps": 80, "evaluate.every": 40}
    keys |= {"checkpoint.every": 40, "optimizer.bias_correction": True}
    keys |= {"optimizer.learning_rate": 1e-2}
    whole = tmp_path / "whole"
    assert pretrain(load(settings, **keys), whole) == 0
    entropy = open_feed(load(settings, **keys)).unigram_entropy
    first, *_, last = lines(whole)
    assert first["lm_loss"] > entropy and last["split"] == "heldout"
    assert last["lm_loss"] < entropy / 2
    (result,), _ = predict.predict(whole, ["the cat"])
    assert result["continuations"][0]


@pytest.mark.parametrize(
    "keys, missing",
    [
        (CAUSAL | {"task.name": "sentence_pairs"}, "next_weights"),
        (CAUSAL | {"objective.name": "mlm"}, "masked_targets"),
    ],
)
def test_a_task_without_the_arrays_of_the_objective_is_refused(settings, tmp_path, keys, missing):
    """Nothing is prepared. A causal LM would otherwise learn to predict masks."""
    keys = settings | keys | {"store": tmp_path / "store"}
    message = refused(*pretraining(keys, tmp_path / "run"))
    assert message.startswith(f"config.task.name={keys['task.name']!r}") and missing in message
    assert not list(tmp_path.iterdir())


@pytest.mark.full
def test_masked_lm_trains_on_whole_sentences(settings, tmp_path):
    keys = SMALLER | {"task.name": "full_sentences"}
    assert pretrain(load(settings, **keys), tmp_path / "run") == 0
    losses = [line["mlm_loss"] for line in lines(tmp_path / "run") if line["split"] == "train"]
    assert losses[-1] < losses[0] - 0.5
    assert "mlm_loss" in lines(tmp_path / "run")[-1]

"""Samples of held-out rows: the same rows at each evaluation, with what the model guesses in them."""

import json
from functools import partial

import jax
import numpy as np
import pytest
from kits.small import VOCABULARY, small_batch, small_objective, small_params
from kits.texts import PROSE

from bert_jax import step
from bert_jax.runs import metrics_file, samples
from bert_jax.tokenizers import tokenizer as tokenizers


@pytest.mark.parametrize("name", ["mlm", "causal_lm"])
def test_guesses_are_the_most_probable_tokens(name):
    """They are those of the logits, at the tokens that the network does not see."""
    keys = {"causal_lm": ("objective.name=causal_lm", "task.name=token_blocks")}
    objective = small_objective(*keys.get(name, ()))
    batch = small_batch(4)
    batch["next_weights"] = (batch["sequence_ids"] > 0).astype(np.float32)
    batch["row_weights"][1] = 0
    params = small_params(objective)
    compute = jax.jit(partial(step.evaluate, objective=objective, samples=3))
    guesses = compute(params, batch)[-1]
    logits = jax.jit(objective.outputs)(params, batch)[f"{name.removeprefix('causal_')}_logits"]
    logits = np.asarray(logits, np.float64)
    nats = np.log(np.exp(logits).sum(-1, keepdims=True)) - logits
    assert guesses["targets"].shape == (3, batch["tokens"].shape[1])
    assert not guesses["is_real"][1].any()
    shown = 0
    for row, position in zip(*np.nonzero(guesses["is_guessed"]), strict=True):
        if name == "mlm":
            assert batch["tokens"][row, position] == VOCABULARY.mask
            places = batch["masked_positions"][row] == position
            (number,) = np.flatnonzero(places & (batch["masked_weights"][row] > 0))
            target = batch["masked_targets"][row, number]
        else:
            number = position - 1
            target = batch["tokens"][row, position]
        of_token = nats[row, number]
        assert guesses["targets"][row, position] == target
        assert guesses["guesses"][row, position] == of_token.argmin()
        expected = pytest.approx(of_token.min(), rel=1e-4)
        assert guesses["guess_nats"][row, position] == expected
        shown += 1
    assert shown > 3


def test_a_row_is_shown_with_its_guesses():
    tokenizer = tokenizers.train("wordpiece", PROSE, 150, True)
    ids = tokenizer.encode(["the quick brown fox"])[0]
    size = len(ids)
    targets = np.array([[*ids, 0, 0]] * 2)
    positions = np.arange(size + 2)
    guesses = {
        "targets": targets,
        "guesses": targets,
        "guess_nats": np.full(targets.shape, np.log(4)),
        "is_real": positions < np.array([[size], [0]]),
        "is_guessed": np.array([positions == size - 1] * 2),
    }
    (parts,) = samples.of_rows(guesses, tokenizer)
    last = tokenizer.readable(ids[-1])
    expected = {"guess": last, "target": last, "probability": 0.25}
    assert parts == [tokenizer.decode(ids[:-1]), expected]
    wrong = {"guess": "cat", "target": "fox", "probability": 0.5}
    words = [str(number) for number in range(50)]
    text = samples.as_text([" ".join(words), wrong, " ".join(words)])
    assert text == f"{' '.join(words[-10:])} [cat 0.5, not fox] {' '.join(words[:10])}"


@pytest.mark.slow
def test_each_evaluation_of_a_run_has_the_same_rows(finished):
    _, directory = finished
    lines = metrics_file.lines(directory / "samples.jsonl", metrics_file.SAMPLES)
    rows = {}
    for line in lines:
        texts = [part if isinstance(part, str) else part["target"] for part in line["parts"]]
        rows.setdefault(line["step"], []).append((line["row"], texts))
    assert [*rows] == [10, 20] and rows[10] == rows[20] and len(rows[10]) == 4
    assert lines[0]["parts"] != lines[4]["parts"]
    assert json.loads((directory / "config.json").read_text())["evaluate"]["samples"] == 4

"""The causal LM: what a token sees; its loss, directly and by transformers."""

import json
from functools import cache
from pathlib import Path

import jax
import numpy as np
import pytest
from kits import transformers_bert
from kits.small import VOCABULARY, small_config
from kits.transformers_bert import within

from bert_jax.objectives import base

ROWS, LENGTH, SEQUENCES = 16, 32, 3


def objective_of(*changes):
    return base.make(small_config("objective.name=causal_lm", *changes), VOCABULARY)


@cache
def make_batch(seed: int = 0) -> dict:
    """Returns rows of one to three packed sequences, most with padding; every fourth only fills the batch."""
    draw = np.random.default_rng(seed)
    ids, positions = np.zeros((2, ROWS, LENGTH), np.int32)
    for row in range(ROWS):
        cuts = sorted(draw.choice(np.arange(2, LENGTH + 1), 1 + row % SEQUENCES, replace=False))
        for number, (start, stop) in enumerate(zip([0, *cuts[:-1]], cuts, strict=True), 1):
            ids[row, start:stop], positions[row, start:stop] = number, np.arange(stop - start)
    has_next = (ids[:, :-1] == ids[:, 1:]) & (ids[:, 1:] > 0)
    used = np.float32(np.arange(ROWS) % 4 < 3)
    tokens = np.where(ids, draw.integers(5, VOCABULARY.size, ids.shape), VOCABULARY.pad)
    return dict(
        tokens=tokens.astype(np.int32),
        segments=np.zeros_like(ids),
        positions=positions,
        sequence_ids=ids,
        cls_positions=np.zeros((ROWS, SEQUENCES), np.int32),
        rows=np.arange(ROWS, dtype=np.int32),
        row_weights=used,
        next_weights=np.pad(has_next, ((0, 0), (0, 1))) * used[:, None],
    )


@cache
def params():
    return jax.jit(objective_of().init)(jax.random.key(0), make_batch())


def test_the_loss_is_that_of_the_next_tokens_of_each_sequence():
    """Compared with a sum over pairs of neighbours, one at a time."""
    objective, batch = objective_of(), make_batch()
    logits = np.float64(jax.jit(objective.outputs)(params(), batch)["lm_logits"])
    logits = logits[..., : VOCABULARY.size]
    nats, hits = [], []
    for row in np.flatnonzero(batch["row_weights"]):
        for sequence in range(1, SEQUENCES + 1):
            own = np.flatnonzero(batch["sequence_ids"][row] == sequence)
            for here, after in zip(own[:-1], own[1:], strict=True):
                scores, target = logits[row, here], batch["tokens"][row, after]
                nats.append(np.log(np.exp(scores).sum()) - scores[target])
                hits.append(scores.argmax() == target)
    totals = objective.weights(batch)
    assert totals == {"lm": len(nats)}
    compute = jax.jit(objective.loss, static_argnames="train")
    loss, metrics = compute(params(), batch, totals, np.uint32(0), train=False)
    assert float(loss) == pytest.approx(np.mean(nats), rel=1e-5)
    assert [float(x) for x in metrics["lm_accuracy"]] == [sum(hits), len(hits)]
    assert float(metrics["lm_loss"][0]) == pytest.approx(sum(nats), rel=1e-5)


def test_a_token_changes_only_outputs_from_its_own_on_in_its_own_sequence():
    outputs = jax.jit(objective_of().outputs)
    batch, (row, place) = make_batch(), (5, 9)
    ids = batch["sequence_ids"][row]
    assert ids[place - 1] == ids[place] == ids[place + 1] < ids.max() and ids[-1] == 0
    other = batch | {"tokens": batch["tokens"].copy()}
    other["tokens"][row, place] += 1
    before, after = (np.asarray(outputs(params(), rows)["lm_logits"]) for rows in (batch, other))
    changed = (before != after).any(-1)
    expected = np.zeros_like(changed)
    expected[row] = (np.arange(LENGTH) >= place) & (ids == ids[place])
    padding = batch["sequence_ids"] == 0
    np.testing.assert_array_equal(changed & ~padding, expected)


@pytest.mark.full
def test_logits_equal_transformers_decoder():
    """transformers' BertLMHeadModel with is_decoder=True, on the golden parameters; rows with padding at the end."""
    import torch
    import transformers

    with np.load(Path(__file__).parents[1] / "golden/bert.npz") as file:
        case = within(dict(file), "exact/")
    theirs, tensors = json.loads(str(case["config"])), within(case, "before/")
    settings = transformers.BertConfig(**theirs, is_decoder=True)
    model = transformers.BertLMHeadModel(settings).double().eval()
    used = {name: torch.from_numpy(x) for name, x in tensors.items() if name in model.state_dict()}
    assert not model.load_state_dict(used, strict=False).unexpected_keys and len(used) > 30
    rows = within(case, "rows/batch/")
    inputs = ("input_ids", "token_type_ids", "attention_mask")
    with torch.no_grad():
        expected = model(**{name: torch.from_numpy(np.int64(rows[name])) for name in inputs}).logits

    config = transformers_bert.config_of(theirs, "objective.name=causal_lm")
    vocabulary = transformers_bert.vocabulary_of(theirs)
    ours = transformers_bert.params_of(tensors)
    ours = {"network": ours["network"], "lm": ours["mlm"]}
    outputs = jax.jit(base.make(config, vocabulary).outputs)(ours, transformers_bert.batch_of(rows))
    real = rows["attention_mask"] > 0
    actual = np.asarray(outputs["lm_logits"])[..., : vocabulary.size]
    np.testing.assert_allclose(actual[real], expected.numpy()[real], atol=5e-6, rtol=5e-6)

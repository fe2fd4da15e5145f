"""The classifier on a causal network: its vectors, and the loss of GPT beside a computation in NumPy."""

import jax
import numpy as np
import pytest
from kits import labelled
from kits.small import VOCABULARY, small_config

from bert_jax.errors import BadInput
from bert_jax.layers import pooling as pools
from bert_jax.models import base as models
from bert_jax.objectives import base

SIZES = {"width": 32, "heads": 4, "layers": 1, "max_length": 32}
KEYS = {f"model.{key}": value for key, value in SIZES.items()}
KEYS |= {"task.labels": "a,b,c", "objective.causal": True}
ROWS = 8
SIZES_OF_TEXTS = (5, 9), (12, 1)  # of a row's first and second text; padding follows


def config_of(name: str = "glue:sst2", **changes):
    return labelled.load(name, KEYS | changes)


def make_batch() -> dict:
    """Returns rows of two packed texts; the last row only fills the batch."""
    draw = np.random.default_rng(0)
    ids, positions = np.zeros((2, ROWS, 16), np.int32)
    starts = np.zeros((ROWS, 2), np.int32)
    for row in range(ROWS):
        first, second = SIZES_OF_TEXTS[row % 2]
        ids[row, : first + second] = [1] * first + [2] * second
        positions[row, : first + second] = [*range(first), *range(second)]
        starts[row, 1] = first
    weights = np.float32(np.arange(ROWS) < ROWS - 1)
    return dict(
        tokens=np.where(ids, draw.integers(5, VOCABULARY.size, ids.shape), 0).astype(np.int32),
        segments=np.zeros_like(ids),
        positions=positions,
        sequence_ids=ids,
        cls_positions=starts,
        rows=np.arange(ROWS, dtype=np.int32),
        row_weights=weights,
        targets=draw.integers(0, 2, ROWS).astype(np.int32),
        label_weights=weights,
    )


def init(objective):
    """Returns parameters of which none is 0 or 1."""
    params = jax.jit(objective.init)(jax.random.key(0), make_batch())
    draw = np.random.default_rng(1)
    return jax.tree.map(lambda x: x + draw.normal(0, 0.3, x.shape).astype(np.float32), params)


def nats_of(logits, target) -> float:
    logits = np.float64(logits)
    return np.log(np.exp(logits - logits.max()).sum()) + logits.max() - logits[target]


@pytest.mark.parametrize("name", ["glue:sst2", "swag"])
def test_the_loss_is_that_of_the_paper(name):
    """L2 + 0.5 L1, where L1 is the mean over each text's tokens and then over texts, those of all choices."""
    keys = {"task.labels": "0,1,2,3", "phases.main.length": 32} if name == "swag" else {}
    objective = base.make(config_of(name, **keys, **{"objective.lm_weight": 0.5}), VOCABULARY)
    batch = make_batch()
    params = init(objective)
    lm = base.make(small_config("objective.name=causal_lm", "model.layers=1"), VOCABULARY)
    in_both = {"network": params["network"], "lm": params["lm"]}
    logits = jax.jit(lm.outputs)(in_both, batch)["lm_logits"][..., : VOCABULARY.size]
    outputs = jax.jit(objective.outputs)(params, batch)
    assert outputs.keys() == {"label_logits"}
    labels = []
    texts = []
    for row in np.flatnonzero(batch["row_weights"]):
        scores = outputs["label_logits"][row]
        scores = scores[:, 0] if name == "swag" else scores[0]
        labels.append(nats_of(scores, batch["targets"][row]))
        for number in (1, 2):
            places = np.flatnonzero(batch["sequence_ids"][row] == number)
            nats = [nats_of(logits[row, at], batch["tokens"][row, at + 1]) for at in places[:-1]]
            if nats:
                texts.append(np.mean(nats))
    compute = jax.jit(objective.loss, static_argnames="train")
    totals = objective.weights(batch)
    scalar, metrics = compute(params, batch, totals, np.uint32(0), train=False)
    assert float(scalar) == pytest.approx(np.mean(labels) + 0.5 * np.mean(texts), rel=1e-5)
    assert float(metrics["lm_loss"][0]) == pytest.approx(np.sum(texts), rel=1e-5)
    assert float(metrics["lm_loss"][1]) == pytest.approx(len(texts))


def test_without_its_weight_there_is_no_lm_and_the_labels_have_the_same_bits():
    batch = make_batch()
    plain = base.make(config_of(), VOCABULARY)
    both = base.make(config_of(**{"objective.lm_weight": 0.5}), VOCABULARY)
    params = init(both)
    without = {name: params[name] for name in ("network", "label")}
    assert jax.eval_shape(plain.init, jax.random.key(0), batch).keys() == without.keys()
    assert plain.weights(batch).keys() == {"label"}
    metrics = []
    for objective, tree in ((plain, without), (both, params)):
        compute = jax.jit(objective.loss, static_argnames="train")
        totals = objective.weights(batch)
        metrics.append(compute(tree, batch, totals, np.uint32(0), train=False)[1])
    assert metrics[0].keys() == {"label_loss"}
    first, second = (list(map(float, sums["label_loss"])) for sums in metrics)
    assert first == second


def test_the_vector_is_that_of_the_last_token_which_alone_sees_all():
    batch = make_batch()
    config = config_of()
    objective = base.make(config, VOCABULARY)
    params = init(objective)
    network = models.make(config, VOCABULARY.size, causal=True)
    assert objective.module.network == network

    @jax.jit
    def states(batch):
        return network.apply({"params": params["network"]}, batch, None)

    before = states(batch)
    last = batch["cls_positions"] + np.array([SIZES_OF_TEXTS[row % 2] for row in range(ROWS)]) - 1
    expected = np.stack([before[row, last[row]] for row in range(ROWS)])
    np.testing.assert_array_equal(pools.pool(network, before, batch, "summary"), expected)
    concat = np.asarray(pools.pool(network, before, batch, "concat"))
    np.testing.assert_array_equal(concat[..., :32], expected)
    label = params["label"]
    logits = jax.jit(objective.outputs)(params, batch)["label_logits"]
    np.testing.assert_allclose(logits, expected @ label["kernel"] + label["bias"], atol=2e-5)
    for row, place in enumerate(last[:, 0]):  # another last token of the first text
        batch["tokens"][row, place] += 1
    has_changed = (states(batch) != before).any(-1) & (batch["sequence_ids"] > 0)
    np.testing.assert_array_equal(has_changed.nonzero()[1], last[:, 0])


def test_the_vectors_of_both_orders_are_added():
    """So swapped texts have the same logits."""
    keys = {"task.text": "a,b", "task.both_orders": True}
    objective = base.make(config_of(**keys), VOCABULARY)
    batch = make_batch()
    params = init(objective)
    ids = batch["sequence_ids"]
    swapped = {name: array.copy() for name, array in batch.items()}
    for row in range(ROWS):
        first = np.flatnonzero(ids[row] == 1)
        second = np.flatnonzero(ids[row] == 2)
        order = [*second, *first]
        for name in ("tokens", "positions"):
            swapped[name][row, : len(order)] = batch[name][row, order]
        swapped["sequence_ids"][row, : len(order)] = [1] * len(second) + [2] * len(first)
        swapped["cls_positions"][row, 1] = len(second)
    outputs = jax.jit(objective.outputs)
    one, other = (outputs(params, rows)["label_logits"] for rows in (batch, swapped))
    assert one.shape == (ROWS, 1, 3)
    np.testing.assert_allclose(one, other, atol=2e-5)
    outputs = jax.jit(base.make(config_of(), VOCABULARY).outputs)
    separate = outputs(params, batch)["label_logits"]
    total = np.asarray(separate).sum(1, keepdims=True) - np.asarray(params["label"]["bias"])
    np.testing.assert_allclose(one, total, atol=2e-5)


@pytest.mark.parametrize("pooling, place", [("first", -1), ("mean", slice(None))])
def test_modernbert_has_its_own_vector_of_a_text(pooling, place):
    """But for the first token, which sees no other one: then it is the last."""
    keys = "model.name=modernbert", "task.name=token_blocks", f"model.pooling={pooling}"
    network = models.make(small_config(*keys), VOCABULARY.size, causal=True)
    x = np.random.default_rng(0).normal(size=(ROWS, 16, 4)).astype(np.float32)
    batch = make_batch()
    vectors = pools.pool(network, x, batch, "summary")
    text = np.atleast_2d(x[0, : SIZES_OF_TEXTS[0][0]][place])
    np.testing.assert_allclose(vectors[0, 0], text.mean(axis=0), rtol=1e-5)


def test_an_lm_may_be_beside_labels_of_tokens():
    keys = {"task.labels": "0,1,2", "objective.lm_weight": 0.5}
    objective = base.make(config_of("ner", **keys), VOCABULARY)
    assert objective.weights(make_batch()).keys() == {"label", "lm"}


@pytest.mark.parametrize("name", ["glue:sst2", "swag", "ner", "squad"])
def test_all_heads_have_networks_of_both_directions(name):
    for is_causal in (False, True):
        config = labelled.load(name, {"task.labels": "0,1,2,3", "objective.causal": is_causal})
        assert base.make(config, VOCABULARY).module.network.causal == is_causal


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_layers_of_gpt_have_their_places(norm):
    """By which rates are lower, and layers frozen."""
    config = config_of(**{"model.name": "gpt", "model.norm": norm, "model.layers": 2})
    objective = base.make(config, VOCABULARY)
    shapes = jax.eval_shape(objective.init, jax.random.key(0), make_batch())
    above = models.layers_above(config, shapes)
    found = {name: {*jax.tree.leaves(part)} for name, part in above.pop("network").items()}
    final = {"final_norm": {1}} if norm == "pre" else {}
    assert found == {"embedder": {3}, "blocks_0": {2}, "blocks_1": {1}} | final
    assert {*jax.tree.leaves(above)} == {0}


@pytest.mark.parametrize(
    "changes",
    [
        {"objective.lm_weight": 0.5, "objective.causal": False},
        {"objective.pool": "first"},
        {"objective.lm_weight": -0.5},
        {"objective.causal": False, "model.name": "gpt"},
        {"task.both_orders": True},
    ],
)
def test_keys_that_do_not_go_together_are_refused(changes):
    with pytest.raises(BadInput, match=next(iter(changes))):
        base.make(config_of(**changes), VOCABULARY)

"""The Universal Transformer: how tokens halt, what a pass shares, and strings of digits."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kits import examples
from universal import act, digits, model, objective

from bert_jax.errors import BadInput
from bert_jax.layers.blocks import Inputs
from bert_jax.layers.positions import sinusoids
from bert_jax.models import base as models

NAME = "universal/config.py"
CLS = 2  # the begin token
POSITIONS = "positions", "target_positions"


def halt_by_a_loop(probabilities) -> tuple:
    """Returns the weights of the passes of one token, their number, and the remainder (arXiv:1603.08983, section 2)."""
    total = 0.0
    weights = np.zeros(len(probabilities))
    for number, probability in enumerate(probabilities):
        if total + probability > 1 - act.EPSILON or number == len(probabilities) - 1:
            weights[number] = 1 - total
            return weights, number + 1, 1 - total
        weights[number] = probability
        total += probability


def test_the_weights_of_the_passes_are_those_of_a_loop_and_add_up():
    draw = np.random.default_rng(0)
    probabilities = draw.uniform(0, 0.6, (6, 50)).astype(np.float32)
    probabilities[:, 0] = 0  # halts after the last pass
    probabilities[:, 1] = 1  # after the first
    halting = act.halting([*jnp.asarray(probabilities)])
    for token in range(50):
        weights, passes, remainder = halt_by_a_loop(probabilities[:, token])
        np.testing.assert_allclose(halting.weights[:, token], weights, atol=1e-6)
        assert halting.passes[token] == passes
        assert halting.ponder[token] == pytest.approx(passes + remainder, abs=1e-5)
    np.testing.assert_allclose(halting.weights.sum(0), 1, atol=1e-6)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """(objective, parameters, a batch of two pairs a row) of the small config."""
    made, batch = examples.prepare(NAME, tmp_path_factory.mktemp("digits"), "task.extra_pieces=9")
    params = jax.jit(made.init)(jax.random.key(0), batch)
    return made, params, batch


def test_passes_share_a_block_and_differ(world):
    made, params, batch = world
    for side in ("encoder", "decoder"):
        names = [name for name in params["network"][side] if name.startswith("blocks")]
        assert names == ["blocks_0"]
    apply = jax.jit(made.module.network.apply, static_argnames="method")
    states = apply({"params": params["network"]}, batch, method="states")
    assert len(states) == 3  # the embeddings, and two passes
    assert abs(states[2] - states[1]).max() > 1e-2


def test_a_pass_adds_positions_and_its_number():
    """By passes that change nothing else."""
    positions = jnp.arange(5)[None]
    inputs = [Inputs(None, extra=positions)] * 3
    blocks = [lambda x, inputs, keys: (x, None)] * 3
    states, _ = model.apply_passes(blocks, None, jnp.zeros((1, 5, 8)), None, inputs)
    for number, added in enumerate(np.diff(np.stack([0 * states[0], *states]), axis=0), 1):
        expected = sinusoids(positions, 8) + sinusoids(jnp.asarray(number), 8)
        np.testing.assert_allclose(added, expected, atol=1e-5)


def test_the_last_state_is_the_mean_of_the_passes():
    """Weighted by their probabilities, and at last by what is missing to 1."""
    inputs = [Inputs(None, extra=jnp.arange(5)[None])] * 3
    blocks = [lambda x, inputs, keys: (x, None)] * 3
    x = jnp.ones((1, 5, 8))
    first, second, third = model.apply_passes(blocks, None, x, None, inputs)[0]

    def halt(x):
        return jnp.full(x.shape[:2], 0.4)

    last = model.apply_passes(blocks, halt, x, None, inputs)[0][-1]
    np.testing.assert_allclose(last, 0.4 * first + 0.4 * second + 0.2 * third, rtol=1e-5)


def test_a_token_that_halts_at_once_has_the_state_of_one_pass(world):
    """Its weight is on the first state, whatever the further passes are."""
    made, params, batch = world
    halted = jax.tree.map(lambda x: x, params)
    halted["network"]["encoder"]["halt"]["logit"] = {
        "kernel": jnp.zeros((32, 1)),
        "bias": jnp.array([9.0]),
    }
    first, last = made.module.network.apply({"params": halted["network"]}, batch, method="states")[
        1:
    ]
    np.testing.assert_allclose(last, first, atol=1e-6)


def test_the_loss_charges_for_passes(world):
    """Its gradient reaches what decides about halting; that of the strings reaches it, too."""
    made, params, batch = world
    totals = made.weights(batch)

    def loss(params, term):
        return made.loss(params, batch, {term: totals[term]}, jnp.uint32(0), train=False)[0]

    for side in ("encoder", "decoder"):
        for term in totals:
            gradients = jax.grad(loss)(params, term)["network"][side]["halt"]["logit"]
            assert abs(gradients["kernel"]).max() > 1e-7, (side, term)
    _, metrics = made.loss(params, batch, totals, jnp.uint32(0), train=False)
    total, weight = metrics["ponder_loss"]
    passes, _ = metrics["passes"]
    real = sum((batch[name] > 0).sum() for name in objective.SIDES.values())
    assert weight == totals["ponder"] == real
    assert 0.01 * passes < total < 0.01 * (passes + weight)


def test_a_string_is_decoded_as_it_is_scored(world):
    """The score of a greedy translation is that of its tokens, computed at once without the caches."""
    made, params, batch = world
    is_first = batch["sequence_ids"] == 1
    names = "tokens", "positions", "segments", "sequence_ids"
    pair = {name: np.where(is_first, batch[name], 0) for name in names}
    decoded = jax.jit(made.outputs)(params, batch | pair)
    length = batch["target_tokens"].shape[1]
    tokens = np.asarray(decoded["translations"])[:, 0, : length - 1]
    sizes = np.asarray(decoded["lengths"])[:, 0]
    inside = np.arange(length) <= sizes[:, None]
    target = {
        "target_tokens": np.where(inside, np.insert(tokens, 0, CLS, axis=1), 0),
        "target_positions": np.arange(length) * inside,
        "target_sequence_ids": inside.astype(np.int32),
    }
    logits = made.module.apply({"params": params}, batch | pair | target, None)["target_logits"]
    log_probs = np.asarray(jax.nn.log_softmax(logits))
    for row, size in enumerate(sizes):
        total = log_probs[row, np.arange(size), tokens[row, :size]].sum()
        assert size > 5 and decoded["scores"][row, 0] == pytest.approx(total, abs=1e-4)


def test_offsets_are_those_of_rows_in_training(world):
    made, _, batch = world
    encoder = made.module.network.encoder.clone(offsets=7)
    positions = jnp.asarray(batch["positions"])
    keys = jnp.arange(len(positions), dtype=jnp.uint32)
    moved = np.asarray(encoder.shift(positions, keys) - positions)
    assert (moved == moved[:, :1]).all() and set(moved[:, 0]) <= {*range(7)}
    assert len(set(moved[:, 0])) > 2
    assert (encoder.shift(positions, None) == positions).all()


def test_both_sides_of_a_row_are_moved_in_training(world):
    """By the same offset: then the vectors are those of a batch whose positions were moved."""
    made, params, batch = world
    size = made.module.network.encoder.vocabulary_size
    network = models.make(examples.load(NAME, "model.dropout=0", "model.offsets=7"), size)
    keys = jnp.arange(len(batch["tokens"]), dtype=jnp.uint32)
    moved = {name: network.encoder.shift(jnp.asarray(batch[name]), keys) for name in POSITIONS}
    apply = jax.jit(network.apply)
    variables = {"params": params["network"]}
    trained = apply(variables, batch, keys)
    np.testing.assert_allclose(trained, apply(variables, batch | moved), atol=1e-5)
    for name in POSITIONS:
        others = batch | {other: moved[other] for other in POSITIONS if other != name}
        assert abs(trained - apply(variables, others)).max() > 1e-3


@pytest.mark.parametrize(
    "operation, string, source, target",
    [
        ("copy", [3, 1, 4], "c 3 1 4", "3 1 4"),
        ("reverse", [3, 1, 4], "r 3 1 4", "4 1 3"),
        ("add", [3, 1, 4, 9], "a 3 1 + 4 9", "7 0 1"),
        ("add", [9, 5, 0], "a 9 + 5 0", "4 1"),  # 9 and 05
        ("add", [0, 0], "a 0 + 0", "0"),
    ],
)
def test_operations(operation, string, source, target):
    assert [*map(digits.join, digits.OPERATIONS[operation](string))] == [source, target]


def test_the_strings_of_a_file_are_always_the_same(tmp_path):
    path = tmp_path / "longer.json"
    path.write_text(json.dumps({"add": [{"digits": [8, 8], "pairs": 5}]}))
    first, second = (digits.load(None, path) for _ in range(2))
    assert first == second and len({example.texts[0] for example in first}) == 5
    for example in first:
        numbers, target = example.texts
        assert len(numbers.split()) == 10
        added = sum(int(part.replace(" ", "")[::-1]) for part in numbers[2:].split("+"))
        assert str(added)[::-1] == target.replace(" ", "")
    path.write_text('{"divide": []}')
    with pytest.raises(BadInput, match="divide"):
        digits.load(None, path)


def test_scores_of_strings():
    scores = digits.score(["1 2 3", "4 4", ""], ["1 2 3", "4 5 6", "7"])
    assert scores == {"exact": pytest.approx(1 / 3), "symbols": pytest.approx(4 / 7)}


def test_the_objective_needs_a_network_that_halts(tmp_path):
    for change in ("model.halting=False", "model.name=transformer"):
        with pytest.raises(BadInput, match="model.name"):
            examples.load(NAME, change)

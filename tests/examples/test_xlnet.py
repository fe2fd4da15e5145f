"""XLNet: two streams, and rows of texts with an order."""

from functools import partial

import jax
import numpy as np
import pytest
from kits import examples
from kits.permuted import (
    KEY,
    LENGTH,
    PIECES,
    VOCABULARY,
    XLNET,
    make_batch,
    make_network,
    slopes,
)

from bert_jax import config as configs
from bert_jax.errors import BadInput
from bert_jax.layers import counts
from bert_jax.models import base as models
from bert_jax.objectives import base
from bert_jax.tasks.feed import open_feed


def test_a_prediction_reads_the_tokens_in_front_of_it_alone():
    """By gradients: not its own, through two layers; and those without a rank."""
    network, batch, params = make_network(XLNET, "model.layers=2")
    ranks = batch["ranks"][0]
    read = slopes(network, params, batch, "predict")
    has_predecessor = False
    for number, place in enumerate(batch["masked_positions"][0]):
        if batch["masked_weights"][0, number]:
            is_read = read(number) > 1e-6
            np.testing.assert_array_equal(is_read, ranks < ranks[place])
            has_predecessor |= is_read[ranks > 0].any()
    assert has_predecessor


def test_a_content_reads_itself_and_the_tokens_in_front_of_it():
    network, batch, params = make_network(XLNET, "model.layers=2")
    ranks = batch["ranks"][0]
    read = slopes(network, params, batch, lambda network, batch: network.streams(batch)[1])
    for place in range(LENGTH):
        np.testing.assert_array_equal(read(place) > 1e-6, ranks <= ranks[place])


def test_in_use_every_token_reads_all():
    network, batch, params = make_network(XLNET)
    states = network.apply(params, batch)
    assert (slopes(network, params, batch, "__call__")(2) > 1e-6).all()
    permuted = network.apply(params, batch | {"ranks": batch["ranks"][::-1]})
    np.testing.assert_array_equal(states, permuted)


def test_segments_matter_by_being_the_same():
    network, batch, params = make_network(XLNET)
    states = jax.jit(network.apply)(params, batch)
    exchanged = jax.jit(network.apply)(params, batch | {"segments": (batch["segments"] + 1) % 3})
    np.testing.assert_array_equal(exchanged, states)
    joined = jax.jit(network.apply)(params, batch | {"segments": 0 * batch["segments"]})
    assert abs(joined - states).max() > 1e-3


def test_the_objective_scores_predicted_tokens():
    objective = base.make(examples.load(XLNET), VOCABULARY)
    batch = make_batch()
    params = jax.jit(objective.init)(KEY, batch)
    outputs = jax.jit(objective.outputs)(params, batch)
    logits = np.asarray(outputs["plm_logits"], np.float64)[..., :PIECES]
    nats = np.log(np.exp(logits).sum(-1))
    nats -= np.take_along_axis(logits, batch["masked_targets"][..., None], axis=2)[..., 0]
    total, weight = objective.terms(outputs, batch)["plm_loss"]
    assert weight == batch["masked_weights"].sum() > 8
    assert total == pytest.approx((nats * batch["masked_weights"]).sum(), rel=1e-5)
    guesses = objective.guesses(outputs, batch)
    assert guesses["is_guessed"].sum() == weight


def test_the_objective_needs_two_streams():
    with pytest.raises(BadInput, match="model.name"):
        examples.load(XLNET, "model.name=bert")


@pytest.mark.parametrize("name, number", [("base", 116_718_336), ("large", 360_268_800)])
def test_sizes_are_the_published_ones(name, number):
    """Those of the network of transformers, with 32,000 pieces."""
    config = configs.load(examples.path_of(f"xlnet/config_{name}.py"), ["dtype=float32"])
    network = models.make(config, config.tokenizer.size)
    shapes = jax.eval_shape(partial(network.init, method="predict"), KEY, make_batch())
    assert counts.count(shapes["params"], config.tokenizer.size) == number


# --- Rows -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Returns the function (changes) -> (store, its first batch of 256 rows)."""
    store = tmp_path_factory.mktemp("store") / "store"

    def read(*changes):
        changes = f"store={store}", "phases.main.batch=256", *changes
        config = examples.load(XLNET, *changes)
        feed = open_feed(config, 0)
        (phase,) = configs.phases(config)
        return feed.store, next(feed.train(phase, 0, 1))

    return read


def find(tokens: np.ndarray, texts: np.ndarray) -> np.ndarray:
    """Returns where a text is in the tokens of a split."""
    windows = np.lib.stride_tricks.sliding_window_view(texts, len(tokens))
    return np.flatnonzero((windows == tokens).all(axis=1))


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_texts_are_read_forwards_or_backwards(rows, share):
    """Each is in the store, and in order: backwards, the one that follows another comes before it."""
    store, batch = rows(f"task.backward_share={share}")
    special = store.manifest["special"]
    tokens = np.load(store.splits["train"].path / "tokens.npy")
    backward, followed = [], 0
    for row, ids, segments in zip(
        batch["tokens"][:80], batch["sequence_ids"], batch["segments"], strict=False
    ):
        assert row[ids > 0][-1] == special["cls"] and segments[ids > 0][-1] == 2
        texts = [row[(ids > 0) & (segments == number)] for number in (0, 1)]
        assert all(text[-1] == special["sep"] for text in texts)
        texts = [text[:-1] for text in texts if len(text) > 8]
        found = [[find(text, tokens), find(text[::-1], tokens)] for text in texts]
        assert all(len(forward) or len(reverse) for forward, reverse in found)
        if len(found) == 2 and all(len(one) + len(other) == 1 for one, other in found):
            directions = [bool(len(reverse)) for _, reverse in found]
            assert directions[0] == directions[1]
            backward.append(directions[0])
            a, b = (found[text][backward[-1]][0] for text in (0, 1))
            gap = a - b - len(texts[1]) if backward[-1] else b - a - len(texts[0])
            followed += 0 <= gap < LENGTH  # tokens of both ends may be cut off
    assert len(backward) > 30 and followed > 5
    assert abs(np.mean(backward) - share) < (0.2 if share == 0.5 else 1e-9)


def test_a_sixth_of_the_tokens_is_predicted_in_a_random_order(rows):
    store, batch = rows()
    special = store.manifest["special"]
    weights, positions, ranks = (
        batch[name] for name in ("masked_weights", "masked_positions", "ranks")
    )
    is_real = batch["sequence_ids"] > 0
    is_text = is_real & ~np.isin(batch["tokens"], [special["sep"], special["cls"]])
    targets = np.take_along_axis(batch["tokens"], positions, axis=1)
    np.testing.assert_array_equal(batch["masked_targets"], np.where(weights > 0, targets, 0))
    assert weights.sum() / is_real.sum() == pytest.approx(1 / 6, abs=0.01)
    for row in range(len(ranks)):
        is_predicted = np.zeros(ranks.shape[1], bool)
        is_predicted[positions[row][weights[row] > 0]] = True
        assert is_predicted.sum() == weights[row].sum()
        is_ranked = is_predicted | (is_real[row] & ~is_text[row])
        np.testing.assert_array_equal(ranks[row] > 0, is_ranked)
        assert len(set(ranks[row][is_ranked])) == is_ranked.sum()
    # Whether the first prediction is in front of the last one.
    first, last = (np.take_along_axis(ranks, positions[:, [end]], axis=1) for end in (1, 4))
    assert 0.35 < (first < last).mean() < 0.65
    # Neighbours are predicted together more often than one in six.
    is_ranked = (ranks > 0) & is_text
    assert (is_ranked[:, 1:] & is_ranked[:, :-1]).sum() / is_ranked.sum() > 0.25


def test_the_order_is_another_one_in_each_step_and_the_same_again(rows):
    _, first = rows()
    _, again = rows()
    _, other = rows("seed=7")
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not np.array_equal(first["ranks"], other["ranks"])

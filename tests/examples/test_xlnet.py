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
    TRANSFORMER_XL,
    VOCABULARY,
    XLNET,
    input_gradients,
    make_batch,
    make_network,
)
from kits.runs import lines
from xlnet import model

from bert_jax import config as configs
from bert_jax.cli import main
from bert_jax.errors import BadInput
from bert_jax.layers import counts
from bert_jax.models import base as models
from bert_jax.objectives import base
from bert_jax.tasks.feed import open_feed
from bert_jax.train import pretrain


def test_a_prediction_reads_the_tokens_before_it_alone():
    """By gradients: not its own, through two layers; and those without a rank."""
    network, batch, params = make_network(XLNET, "model.layers=2")
    ranks = batch["ranks"][0]
    read = input_gradients(network, params, batch, "predict")
    has_predecessor = False
    for number, place in enumerate(batch["masked_positions"][0]):
        if batch["masked_weights"][0, number]:
            is_read = read(number) > 1e-6
            np.testing.assert_array_equal(is_read, ranks < ranks[place])
            has_predecessor |= is_read[ranks > 0].any()
    assert has_predecessor


def test_a_content_reads_itself_and_the_tokens_before_it():
    """Through two layers; the third one reads it."""
    network, batch, params = make_network(XLNET, "model.layers=3")
    ranks = batch["ranks"][0]
    read = input_gradients(network, params, batch, lambda network, batch: network.streams(batch)[1])
    for place in range(LENGTH):
        np.testing.assert_array_equal(read(place) > 1e-6, ranks <= ranks[place])


def test_in_use_every_token_reads_all():
    network, batch, params = make_network(XLNET)
    states = network.apply(params, batch)
    assert (input_gradients(network, params, batch, "__call__")(2) > 1e-6).all()
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


def test_packed_texts_are_as_each_alone():
    """As choices of a question are."""
    network, _, params = make_network(XLNET, "model.layers=2")
    draw = np.random.default_rng(0)
    sizes = 5, 7
    parts = [draw.integers(5, PIECES, (1, size)).astype(np.int32) for size in sizes]
    rows = [*parts, np.concatenate(parts, axis=1)]
    ids = [np.ones((1, size), np.int32) for size in sizes]
    ids.append(np.repeat([[1, 2]], sizes, axis=1).astype(np.int32))
    states = []
    for tokens, sequence_ids in zip(rows, ids, strict=True):
        batch = {"tokens": tokens, "sequence_ids": sequence_ids, "segments": 0 * tokens}
        states.append(network.apply(params, batch | {"positions": 0 * tokens}))
    np.testing.assert_allclose(states[2], np.concatenate(states[:2], axis=1), atol=1e-5)


def test_dropout_is_that_of_rows_streams_and_segments():
    """Equal keys give equal bits; each stream and each segment has masks of its own."""
    keys = np.array([3, 3, 4], np.uint32)
    for name, method in ((XLNET, "predict"), (TRANSFORMER_XL, "__call__")):
        changes = () if name == XLNET else ("model.segment=4", "model.memory=4")
        network, batch, params = make_network(name, *changes)
        network = network.clone(dropout=0.5)
        batch = {key: np.stack([array[0]] * 3) for key, array in batch.items()}
        batch["step_key"] = np.uint32(1)
        apply = jax.jit(partial(network.apply, method=method))
        x = np.asarray(apply(params, batch, keys))
        np.testing.assert_array_equal(x[0], x[1])
        assert 0.4 < (x == 0).mean() < 0.6  # of the last states
        is_kept = (x[0] != 0) & (x[2] != 0)
        assert (x[0] != x[2])[is_kept].mean() > 0.9  # not of these alone
        batch["step_key"] = np.uint32(2)  # of the dropout of distances, which rows share
        is_kept = x != 0
        assert (apply(params, batch, keys) != x)[is_kept].mean() > 0.9


@pytest.mark.parametrize(
    "change", ["model.name=bert", "model.type_vocabulary=2", "task.mask_share=0.1"]
)
def test_wrong_keys_are_refused(change):
    with pytest.raises(BadInput, match=change.partition("=")[0]):
        examples.load(XLNET, change)


def test_no_text_is_continued_by_two_streams():
    config = examples.load(XLNET)
    config.objective.name = "causal_lm"
    with pytest.raises(BadInput, match="objective.name"):
        model.check(config)


@pytest.mark.parametrize("name, number", [("base", 116_718_336), ("large", 360_268_800)])
def test_sizes_are_the_published_ones(name, number):
    """Those of the network of transformers, with 32,000 pieces."""
    config = configs.load(examples.path_of(f"xlnet/config_{name}.py"), ["dtype=float32"])
    network = models.make(config, config.tokenizer.size)
    shapes = jax.eval_shape(partial(network.init, method="predict"), KEY, make_batch())
    assert counts.count(shapes["params"], config.tokenizer.size) == number


@pytest.mark.full
@pytest.mark.slow
def test_a_tagger_begins_with_a_run(tmp_path):
    """The command of README's table: the network is that of the run, and names are learned."""
    run = examples.load(XLNET, f"store={tmp_path}/store")
    assert pretrain(run, tmp_path / "run") == 0
    sentence = "in O\nPeru B-place\n. O\n\n"
    for name in ("train.txt", "dev.txt"):
        (tmp_path / name).write_text(40 * sentence)
    keys = {
        "init_from": tmp_path / "run",
        "task.data": tmp_path,
        "task.train": "train.txt",
        "task.dev": "dev.txt",
        "task.epochs": 40,
        "optimizer.learning_rate": 1e-2,
        "compilation_cache": "",
        "log.report": False,
    }
    words = ["finetune", "--config", "ner", "--workdir", str(tmp_path / "tagger")]
    assert main([*words, *(f"--config.{key}={value}" for key, value in keys.items())]) == 0
    config = configs.load(str(tmp_path / "tagger/config.json"), [])
    assert (config.model.name, config.model.width) == ("xlnet.model", 32)
    assert lines(tmp_path / "tagger")[-1]["f1"] == 1


# --- Rows -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Returns the function (changes) -> (store, its first two batches of 256 rows)."""
    store = tmp_path_factory.mktemp("store") / "store"

    def read(*changes):
        changes = f"store={store}", "phases.main.batch=256", *changes
        config = examples.load(XLNET, *changes)
        feed = open_feed(config, 0)
        (phase,) = configs.phases(config)
        return feed.store, *feed.train(phase, 0, 2)

    return read


def find(tokens: np.ndarray, texts: np.ndarray) -> np.ndarray:
    """Returns where a text is in the tokens of a split."""
    windows = np.lib.stride_tricks.sliding_window_view(texts, len(tokens))
    return np.flatnonzero((windows == tokens).all(axis=1))


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_texts_are_read_forwards_or_backwards(rows, share):
    """Each is in the store, and in order: backwards, the one that follows another comes before it."""
    store, batch, _ = rows(f"task.backward_share={share}")
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
    store, batch, _ = rows()
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
    _, first, second = rows()
    _, again, _ = rows()
    _, other, _ = rows("seed=7")
    assert all(np.array_equal(first[name], again[name]) for name in first)
    for batch in (second, other):
        assert not np.array_equal(first["ranks"], batch["ranks"])

"""XLNet and Transformer-XL: relative positions, two streams, memory, and rows of texts with an order."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kits import examples
from xlnet import relative, transformer_xl

from bert_jax import config as configs
from bert_jax.errors import BadInput
from bert_jax.layers import counts
from bert_jax.layers.attention_spec import Mask, Spec
from bert_jax.layers.blocks import Inputs, LayerOptions
from bert_jax.models import base as models
from bert_jax.objectives import base
from bert_jax.tasks.feed import open_feed
from bert_jax.tokenizers.special_tokens import Vocabulary

XLNET = "xlnet/config.py"
TRANSFORMER_XL = "xlnet/config_transformer_xl.py"
PIECES = 50
VOCABULARY = Vocabulary(PIECES, **dict(pad=0, unk=1, cls=2, sep=3, mask=4))
ROWS, LENGTH, PREDICTIONS = 3, 13, 5
DRAW = np.random.default_rng(0)
KEY = jax.random.key(0)


def sinusoid(distance: int, width: int):
    """Returns float64[D], spelled out."""
    rates = [10_000 ** (-i / width) for i in range(0, width, 2)]
    return np.array([f(distance * rate) for f in (np.sin, np.cos) for rate in rates])


# --- Relative positions ---------------------------------------------------------------------------


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("memory", range(10))
def test_the_shift_is_a_loop(monkeypatch, memory, is_causal):
    """And so is the gather, of consecutive positions."""
    monkeypatch.setattr(relative, "jnp", np)
    for length in range(1, 18):
        keys = memory + length
        least = 0 if is_causal else 1 - keys
        products = DRAW.normal(size=(2, 3, length, keys - least))
        shifted = relative.shift(products, keys)
        positions = np.arange(memory, keys)[None], np.arange(keys)[None]
        gathered = relative.gather(products, *positions)
        assert shifted.shape == gathered.shape == (2, 3, length, keys)
        for i in range(length):
            for j in range(keys):
                distance = memory + i - j
                if distance >= least:
                    expected = products[..., i, keys - 1 - distance]
                    np.testing.assert_array_equal(shifted[..., i, j], expected)
                    np.testing.assert_array_equal(gathered[..., i, j], expected)


def test_waves_are_those_of_each_distance():
    for is_causal, last in ((True, 0), (False, -4)):
        waves = relative.waves(5, 6, is_causal)
        expected = [sinusoid(distance, 6) for distance in range(4, last - 1, -1)]
        np.testing.assert_allclose(waves[0], expected, atol=1e-6)
    clamped = relative.waves(5, 6, False, clamp=2)[0]
    expected = [sinusoid(np.clip(distance, -2, 2), 6) for distance in range(4, -5, -1)]
    np.testing.assert_allclose(clamped, expected, atol=1e-6)


HEADS, SIZE = 2, 4
WIDTH = HEADS * SIZE
OPTIONS = LayerOptions("relu", 0.5, 0.5, 1e-5, jnp.float32, bias=False)
X = DRAW.normal(size=(ROWS, LENGTH, WIDTH)).astype(np.float32)
MEMORY = DRAW.normal(size=(ROWS, 4, WIDTH)).astype(np.float32)


def scores(params, x, source, positions):
    """Returns float64[B, H, L, M], by four terms for each pair. positions: of queries, and of keys."""

    def heads(name, states):
        return (states @ params[name]["kernel"]).reshape(*states.shape[:-1], HEADS, SIZE)

    q, k = heads("query", x), heads("key", source)
    u, v = params["content_bias"], params["distance_bias"]
    result = np.zeros((len(x), HEADS, x.shape[1], source.shape[1]))
    for i, query in enumerate(positions[0]):
        for j, key in enumerate(positions[1]):
            r = heads("distance", sinusoid(query - key, WIDTH))
            contents = (q[:, i] + u) * k[:, j]
            result[:, :, i, j] = (contents + (q[:, i] + v) * r).sum(-1)
    return SIZE**-0.5 * result


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("case", ["row", "memory", "packed"])
def test_scores_are_four_terms_of_each_pair(case, is_causal):
    ids = np.ones((ROWS, LENGTH), int)
    source, positions, places = X, (), np.arange(LENGTH)
    if case == "packed":
        ids[:, 5:] = 2
        places = np.concatenate([np.arange(5), np.arange(LENGTH - 5)])
        positions = (np.broadcast_to(places, ids.shape),) * 2
    key_ids = ids
    key_places = places
    if case == "memory":
        source = np.concatenate([MEMORY, X], axis=1)
        key_ids = np.ones(source.shape[:2], int)
        key_places = np.arange(source.shape[1])
        places = key_places[-LENGTH:]
    mask = transformer_xl.consecutive(jnp.asarray(ids), jnp.asarray(key_ids))
    waves = relative.waves(source.shape[1], WIDTH, is_causal)
    inputs = Inputs(mask, source, extra=relative.Distances(waves, positions))
    layer = relative.Attention(HEADS, Spec("xla", SIZE, causal=is_causal), OPTIONS)
    params = layer.init(KEY, X, inputs, None)
    options = {"capture_intermediates": lambda _, name: name == "probabilities"}
    _, kept = layer.apply(params, X, inputs, None, mutable=["intermediates"], **options)
    (probabilities,) = jax.tree.leaves(kept)
    exact = scores(jax.device_get(params["params"]), X, source, (places, key_places))
    seen = ids[:, :, None] == key_ids[:, None]
    if is_causal:
        seen &= places[:, None] >= key_places
    exact = np.where(seen[:, None], exact, -np.inf)
    exact = np.exp(exact - exact.max(-1, keepdims=True))
    np.testing.assert_allclose(probabilities, exact / exact.sum(-1, keepdims=True), atol=2e-6)


# --- Transformer-XL -------------------------------------------------------------------------------


def make_network(name: str, *changes):
    """Returns (network, batch, random parameters) of a small config without dropout."""
    config = examples.load(name, "model.dropout=0.0", "model.attention_dropout=0.0", *changes)
    network = models.make(config, PIECES)
    batch = make_batch()
    method = "predict" if name == XLNET else None
    params = jax.jit(partial(network.init, method=method))(KEY, batch)
    leaves, structure = jax.tree.flatten(params)
    draw = np.random.default_rng(1)
    values = [leaf + draw.normal(0, 0.1, leaf.shape).astype(np.float32) for leaf in leaves]
    return network, batch, structure.unflatten(values)


def make_batch() -> dict:
    """Returns rows of two texts, [SEP], and [CLS], with padding; five tokens of each are predicted in an order."""
    draw = np.random.default_rng(2)
    sizes = np.array([LENGTH, LENGTH - 2, LENGTH - 4])
    places = np.broadcast_to(np.arange(LENGTH), (ROWS, LENGTH))
    is_real = places < sizes[:, None]
    is_last = places == sizes[:, None] - 1
    positions = np.sort([draw.permutation(8)[:PREDICTIONS] for _ in range(ROWS)], axis=1)
    ranks = 1 + np.array([draw.permutation(LENGTH) for _ in range(ROWS)])
    is_special = is_last | (places == 3) | (places == sizes[:, None] - 2)
    is_predicted = (positions[..., None] == np.arange(LENGTH)).any(1) & ~is_special
    tokens = np.array([5 + draw.permutation(PIECES - 5)[:LENGTH] for _ in range(ROWS)])
    batch = {
        "tokens": np.where(is_real, tokens, 0),
        "segments": np.where(is_last, 2, (places > 3) & is_real),
        "positions": np.where(is_real, places, 0),
        "sequence_ids": is_real,
        "cls_positions": np.zeros((ROWS, 1)),
        "masked_positions": positions,
        "masked_targets": np.take_along_axis(tokens, positions, axis=1),
        "ranks": np.where(is_predicted | (is_special & is_real), ranks, 0),
        "rows": np.arange(ROWS),
    }
    batch = {name: np.asarray(array, np.int32) for name, array in batch.items()}
    used = np.take_along_axis(is_predicted, positions, axis=1)
    floats = {"masked_weights": used, "row_weights": np.ones(ROWS)}
    floats["next_weights"] = np.roll(is_real, -1, axis=1) & (places < LENGTH - 1)
    return batch | {name: array.astype(np.float32) for name, array in floats.items()}


SEGMENT = "model.layers=2", "model.segment=5"


def run_layers(network, params, batch, mask):
    """Returns the last states of rows that are read at once, with this mask."""

    def compute(network):
        inputs = network.make_inputs(Mask(batch["sequence_ids"]), batch["positions"])
        x = network.embed(batch)
        for block, of_layer in zip(network.blocks, inputs, strict=True):
            x, _ = block(x, of_layer._replace(mask=mask), None)
        return x

    return network.apply(params, method=compute)


def test_segments_with_a_memory_of_all_are_one_causal_row():
    """With a shorter memory they are not; in use it may be longer than in training."""
    changes = "model.memory=5", "model.evaluation_memory=20"
    network, batch, params = make_network(TRANSFORMER_XL, *SEGMENT, *changes)
    is_real = batch["sequence_ids"] > 0
    row = run_layers(network, params, batch, Mask(batch["sequence_ids"]))
    states = network.apply(params, batch, method="states")
    np.testing.assert_allclose(states[-1][is_real], row[is_real], atol=2e-5)
    short = network.clone(evaluation_memory=-1).apply(params, batch)
    assert abs(short - row)[:, 10:][is_real[:, 10:]].max() > 1e-3


@pytest.mark.parametrize("memory", [0, 1, 3, 5, 7])
def test_a_memory_of_one_layer_is_a_window_of_the_row(memory):
    """It begins so many tokens in front of the segment."""
    changes = "model.segment=5", f"model.memory={memory}"
    network, batch, params = make_network(TRANSFORMER_XL, *changes)
    places = np.arange(LENGTH)
    starts = places // 5 * 5
    is_near = np.broadcast_to(places >= starts[:, None] - memory, (ROWS, LENGTH, LENGTH))
    row = run_layers(network, params, batch, Mask(batch["sequence_ids"], pairs=is_near))
    is_real = batch["sequence_ids"] > 0
    x = network.apply(params, batch)
    np.testing.assert_allclose(x[is_real], row[is_real], atol=2e-5)


def slopes(network, params, batch, method):
    """Returns the function (place) -> float32[L]: the largest gradient of a last state of the first row by the
    embedding of each of its tokens, which are all different."""

    @jax.jit
    @jax.grad
    def differentiate(params, place):
        return jnp.take(network.apply(params, batch, method=method)[0], place, axis=0).sum()

    def read(place):
        gradients = differentiate(params, place)["params"]["embedder"]["words"]
        return abs(np.asarray(gradients))[batch["tokens"][0]].max(-1)

    return read


def test_no_gradient_flows_into_the_memory():
    """But it is read. Later tokens are not."""
    network, batch, params = make_network(TRANSFORMER_XL, *SEGMENT, "model.memory=10")
    gradients = slopes(network, params, batch, "__call__")(7)
    assert (gradients[:5] == 0).all() and (gradients[8:] == 0).all()
    assert (gradients[5:8] > 1e-5).all()
    other = batch | {"tokens": batch["tokens"].copy()}
    other["tokens"][0, 1] += 1
    states = [network.apply(params, rows)[0, 7] for rows in (batch, other)]
    assert abs(states[1] - states[0]).max() > 1e-3


def test_texts_are_continued_with_a_memory_of_all():
    """Token by token, from a cache."""
    network, batch, params = make_network(TRANSFORMER_XL, *SEGMENT, "model.evaluation_memory=20")
    prompt = {name: array[:, :6] for name, array in batch.items() if array.ndim > 1}
    whole = network.apply(params, batch, method="states")[-1]
    cache = network.apply(params, prompt, LENGTH, method="start")
    for place in range(5, 9):
        tokens = batch["tokens"][:, place]
        x, cache = network.apply(params, tokens, cache, method="read_next")
        np.testing.assert_allclose(x, whole[:, place], atol=2e-5)


# --- Two streams ----------------------------------------------------------------------------------


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

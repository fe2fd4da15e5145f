"""The example `long`: local and memory-compressed attention, the image transformer, and losses of all layers."""

import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kits.examples import load, path_of
from kits.objectives import assert_halves_add_up
from kits.small import VOCABULARY, synthetic
from long import attention, complete, digits, image
from sklearn import datasets

from bert_jax import config as configs
from bert_jax.data import store as stores
from bert_jax.errors import BadInput
from bert_jax.layers import rotary
from bert_jax.layers.attention_spec import Mask, Spec
from bert_jax.layers.blocks import Inputs, LayerOptions
from bert_jax.models import base as models
from bert_jax.objectives import base as objectives
from bert_jax.tasks.feed import open_feed

HEADS, SIZE, ROWS = 2, 4, 2
WIDTH = HEADS * SIZE
OPTIONS = LayerOptions("gelu", 0.3, 0.3, 1e-5, jnp.float32, bias=True)
SMALL = ("dtype=float32", "model.layers=2", "model.width=32", "model.heads=4")
LONG = (*SMALL, "model.max_length=32", "model.block=5")
IMAGE = (*SMALL, "model.dropout=0.0")
CHARACTERS = (*SMALL, "model.max_length=32", "phases.main.length=32", "model.layers=3")
TEXTS = 7, 13, 9  # tokens of three sequences of a row, behind which are three places of padding


def packed(sizes, length: int):
    """Returns sequence_ids and positions, int32[length], of sequences of these sizes."""
    ids = np.repeat(np.arange(len(sizes)) + 1, sizes)
    positions = np.concatenate([np.arange(size) for size in sizes])
    return (np.pad(x, (0, length - len(ids))).astype(np.int32) for x in (ids, positions))


def softmax(x):
    x = np.exp(x - x.max())
    return x / x.sum()


def affine(layer, x):
    return x @ layer["kernel"] + layer["bias"]


def heads(x):
    return x.reshape(*x.shape[:-1], HEADS, SIZE)


def rotated(vector, position):
    """Returns a vector of a head, float[K], rotated by a position."""
    rates = rotary.BASE ** (-np.arange(0, SIZE, 2) / SIZE)
    cosines, sines = np.cos(position * rates), np.sin(position * rates)
    first, second = np.split(vector, 2)
    return np.concatenate([first * cosines - second * sines, second * cosines + first * sines])


def loop(params, x, keys_of, values_of, position=lambda place: 0.0):
    """Returns [L, D]: attention of x[L, D] to the keys and values of each place, lists of [H, K]."""
    params = jax.tree.map(np.float64, params)
    result = []
    for place in range(len(x)):
        q = heads(affine(params["query"], x[place])) * SIZE**-0.5
        mixed = []
        for head in range(HEADS):
            query = rotated(q[head], position(place))
            k = np.array([key[head] for key in keys_of(params, place)])
            v = np.array([value[head] for value in values_of(params, place)])
            mixed.append(softmax(k @ query) @ v)
        result.append(affine(params["out"], np.concatenate(mixed)))
    return np.array(result)


@pytest.mark.parametrize("is_rotated", [False, True])
@pytest.mark.parametrize("sizes", [(29,), TEXTS])
def test_compressed_attention_is_a_loop_over_windows(sizes, is_rotated):
    """With a key of zeros, and windows of three tokens before the query."""
    length = 32
    ids, positions = packed(sizes, length)
    angles = ()
    if is_rotated:
        angles = rotary.angles(positions[None], SIZE, rotary.BASE)
    windows = attention.make_windows(ids[None], positions[None], 3)
    mask = attention.compressed_mask(Mask(ids[None], angles=angles), windows)
    layer = attention.CompressedAttention(HEADS, Spec("xla", SIZE), OPTIONS)
    x = np.random.default_rng(0).normal(size=(1, length, WIDTH)).astype(np.float32)
    inputs = Inputs(mask, extra=windows.places)
    params = jax.jit(layer.init)(jax.random.key(0), x, inputs, None)["params"]
    result, _ = jax.jit(layer.apply)({"params": params}, x, inputs, None)

    def position(place):
        return positions[place] if is_rotated else 0

    def vectors_of(params, place, name):
        vectors = [np.zeros((HEADS, SIZE))]
        first = place - positions[place]
        for start in range(first, place - 2, 3):
            window = x[0, start : start + 3]
            vector = heads(affine(params[name], window.ravel()))
            if name == "key":
                vector = np.array([rotated(key, position(start + 2)) for key in vector])
            vectors.append(vector)
        return vectors

    names = partial(vectors_of, name="key"), partial(vectors_of, name="value")
    expected = loop(params, x[0], *names, position)
    np.testing.assert_allclose(result[0, ids > 0], expected[ids > 0], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("sizes, is_packed", [((29,), False), ((29,), True), (TEXTS, True)])
def test_local_attention_is_a_loop_over_blocks(sizes, is_packed):
    length = 31
    ids, positions = packed(sizes, length)
    blocks = attention.local_blocks(ids[None], positions[None], 5, is_packed)
    layer = attention.BlockAttention(HEADS, Spec("xla", SIZE, causal=True), OPTIONS)
    x = np.random.default_rng(0).normal(size=(1, length, WIDTH)).astype(np.float32)
    inputs = Inputs(Mask(ids[None]), extra=blocks)
    params = jax.jit(layer.init)(jax.random.key(0), x, inputs, None)["params"]
    result, _ = jax.jit(layer.apply)({"params": params}, x, inputs, None)

    def vectors(params, place, name):
        first = place - positions[place] % 5
        return [heads(affine(params[name], x[0, other])) for other in range(first, place + 1)]

    expected = loop(params, x[0], partial(vectors, name="key"), partial(vectors, name="value"))
    np.testing.assert_allclose(result[0, ids > 0], expected[ids > 0], rtol=1e-6, atol=1e-6)


# --- Networks -------------------------------------------------------------------------------------


def make_batch(parts) -> dict:
    """Returns a row of sequences of tokens int32[L], with three places of padding."""
    length = sum(map(len, parts)) + 3
    ids, positions = packed([*map(len, parts)], length)
    tokens = np.pad(np.concatenate(parts), (0, length - sum(map(len, parts))))
    arrays = {"tokens": tokens, "sequence_ids": ids, "positions": positions}
    return {name: array[None].astype(np.int32) for name, array in arrays.items()}


def make_network(name, *overrides, **fields):
    """Returns the network of a config, and random parameters."""
    network = models.make(load(name, *overrides), VOCABULARY.size, **fields)
    batch = make_batch([np.full(27, 5)])
    return network, jax.jit(network.init)(jax.random.key(1), batch)


@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_texts_of_a_row_are_those_of_each_alone(positions):
    """Also where a row is known to have one sequence."""
    keys = *LONG, f"model.positions={positions}", "model.initializer=0.3"
    network, params = make_network("long/config.py", *keys)
    alone = network.clone(sequences=1)
    draw = np.random.default_rng(0)
    texts = [draw.integers(5, VOCABULARY.size, size) for size in TEXTS]
    states = np.array(jax.jit(network.apply)(params, make_batch(texts)))[0]
    start = 0
    for text in texts:
        expected = jax.jit(alone.apply)(params, make_batch([text]))[0, : len(text)]
        np.testing.assert_allclose(states[start : start + len(text)], expected, atol=1e-5)
        start += len(text)


def seen(network, params, length: int) -> np.ndarray:
    """Returns bool[L, L]: whether the last state of a place has a gradient by the embedding of another place."""
    batch = make_batch([np.arange(5, 5 + length)])
    embedded = network.apply(params, batch, method="embeddings")

    def compute(embedded):
        states = network.apply(params, batch, embeddings=embedded, method="states")
        return jnp.tanh(states[-1][0, :length]).sum(axis=-1)

    gradients = jax.jit(jax.jacrev(compute))(embedded)
    return np.asarray(abs(gradients[:, 0, :length]).max(axis=-1) > 0)


@pytest.mark.parametrize("layers", [1, 2])
def test_a_token_sees_its_block_and_then_all_windows_before_it(layers):
    network, params = make_network("long/config.py", *LONG, f"model.layers={layers}")
    length = 24
    places = np.arange(length)
    of_block = places // 5 == places[:, None] // 5
    expected = of_block & (places <= places[:, None])
    if layers == 2:
        expected |= places < 3 * (places[:, None] // 3)
    np.testing.assert_array_equal(seen(network, params, length), expected)


BASELINES = {
    "long/config.py": (*SMALL, "model.max_length=32", "phases.main.length=32"),
    "long/config_digits.py": IMAGE,
}


@pytest.mark.parametrize("name", BASELINES)
def test_baselines_attend_to_all_tokens_before(name):
    config = configs.load(f"{path_of(name)}:full", [*BASELINES[name]])
    network = models.make(config, VOCABULARY.size)
    length = config.phases.main.length - 3
    params = jax.jit(network.init)(jax.random.key(1), make_batch([np.full(length, 5)]))
    np.testing.assert_array_equal(seen(network, params, length), np.tri(length, dtype=bool))


def test_a_row_without_a_window_sees_zeros():
    network, params = make_network("long/config.py", *LONG)
    batch = {name: array[:, :2] for name, array in make_batch([np.full(27, 5)]).items()}
    assert np.isfinite(network.apply(params, batch)).all()


def objective_of(name, *overrides):
    """Returns an objective, random parameters, and a batch of rows of two sequences."""
    config = load(name, *overrides)
    batch = synthetic(
        batch=4,
        length=config.phases.main.length,
        predictions=5,
        vocabulary=VOCABULARY.size,
        sequences=2,
    )
    batch["next_weights"] = np.asarray(objectives.has_next(batch["sequence_ids"]), np.float32)
    objective = objectives.make(config, VOCABULARY)
    return objective, jax.jit(objective.init)(jax.random.key(0), batch), batch


@pytest.mark.slow
@pytest.mark.parametrize("remat", ["none", "attention", "full"])
def test_halves_of_a_batch_add_up(remat):
    """With all dropout."""
    keys = *LONG, "phases.main.length=32", "model.dropout=0.1", "model.attention_dropout=0.1"
    assert_halves_add_up(*objective_of("long/config.py", *keys, f"train.remat={remat}"))


def test_a_prompt_is_continued_as_without_a_cache():
    """Prompts of different lengths."""
    network, params = make_network("long/config.py", *LONG)
    tokens = np.random.default_rng(0).integers(5, VOCABULARY.size, (2, 12)).astype(np.int32)
    sizes = np.array([4, 9])
    ids = (np.arange(9) < sizes[:, None]).astype(np.int32)
    batch = {"tokens": tokens[:, :9], "sequence_ids": ids}
    row = np.arange(2)
    cache = network.apply(params, batch, 12, method="start")
    whole = {"tokens": tokens, "sequence_ids": np.ones_like(tokens)}
    whole["positions"] = np.broadcast_to(np.arange(12), tokens.shape)
    expected = network.apply(params, whole)
    step = jax.jit(partial(network.apply, method="read_next"))
    for number in range(3):
        places = sizes - 1 + number
        states, cache = step(params, tokens[row, places], cache)
        np.testing.assert_allclose(states, expected[row, places], atol=1e-5)


# --- Images ---------------------------------------------------------------------------------------


def seen_of_image(grid) -> np.ndarray:
    """Returns bool[pixels, pixels]: whether a pixel is predicted from another one, both numbered line by line."""
    pixels = [*np.ndindex(grid.image_height, grid.image_width)]

    def block(pixel):
        return pixel[0] // grid.query_height, pixel[1] // grid.query_width

    def key(pixel):
        """Pixels are generated in the order of these keys."""
        return *block(pixel), *pixel

    def is_near(pixel, other):
        line, column = block(pixel)
        first_line = line * grid.query_height
        first_column = column * grid.query_width
        lines = range(first_line - grid.above, first_line + grid.query_height)
        columns = range(first_column - grid.beside, first_column + grid.query_width + grid.beside)
        return other[0] in lines and other[1] in columns

    return np.array([[is_near(a, b) and key(b) < key(a) for b in pixels] for a in pixels])


GRIDS = image.Grid(8, 8, 4, 4, 2, 2), image.Grid(4, 6, 2, 3, 1, 4), image.Grid(4, 6, 4, 6, 0, 0)


@pytest.mark.parametrize("grid", GRIDS)
def test_pixels_see_those_of_their_memory_block_that_are_generated_before(grid):
    """And the begin token. With a whole image as the block, pixels follow line by line."""
    length = 1 + grid.pixels
    memory, is_seen = grid.blocks(length)
    is_read = np.zeros((is_seen.shape[0] * is_seen.shape[1], length), bool)
    blocks = attention.make_blocks(memory, is_seen, np.ones((1, length), np.int32))
    for block, number, key in zip(*np.nonzero(blocks.is_seen[0]), strict=True):
        is_read[block * is_seen.shape[1] + number, blocks.memory[block, key]] = True
    order = grid.order()
    expected = seen_of_image(grid)[order][:, order]
    np.testing.assert_array_equal(is_read[: grid.pixels, 1:], expected)
    assert is_read[: grid.pixels, 0].all() and not is_read[grid.pixels :].any()
    is_whole = grid.query_height == grid.image_height
    assert (order == np.arange(grid.pixels)).all() == is_whole


def test_gradients_of_a_pixel_are_those_of_its_memory_block():
    keys = *IMAGE, "model.layers=1", "model.query_height=2"
    network, params = make_network("long/config_digits.py", *keys)
    grid = network.grid
    order = grid.order()
    is_own = np.eye(64, dtype=bool)[:, 1:]  # the token at a place, which the stream brings
    expected = seen_of_image(grid)[order][:, order][:, :-1]
    is_read = seen(network, params, grid.pixels)
    np.testing.assert_array_equal(is_read[:, 1:], expected | is_own)


def test_rows_of_digits_are_pixels_in_the_order_of_blocks(tmp_path):
    for name, stop in (("train", 40), ("dev", 50)):
        span = {"first": stop - 10, "stop": stop}
        (tmp_path / f"{name}.json").write_text(json.dumps(span))
    keys = f"task.data={tmp_path}", f"store={tmp_path / 'store'}", "phases.main.batch=10"
    config = load("long/config_digits.py", *IMAGE, *keys)
    feed = open_feed(config, 0)
    (phase,) = configs.phases(config)
    batch = next(feed.train(phase, 0, 1))
    pieces = stores.open_store(config.store).tokenizer.pieces
    words = [pieces[token] for token in batch["tokens"].ravel()]
    words = np.array(words).reshape(batch["tokens"].shape)
    assert (words[:, 0] == digits.BEGIN).all()
    images = np.empty((10, 64), int)
    images[:, image.grid_of(config).order()] = words[:, 1:].astype(int)
    expected = datasets.load_digits().images[30:40].reshape(10, 64).astype(int)
    assert sorted(images.tolist()) == sorted(expected.tolist())
    assert (batch["next_weights"] == (np.arange(65) < 64)).all()
    assert (batch["positions"] == np.arange(65)).all()


def test_completions_are_below_upper_halves(monkeypatch):
    """By a model that completes each image as it is."""
    config = load("long/config_digits.py")
    order = image.grid_of(config).order()
    path = Path(complete.__file__).parent / "data/dev.json"
    images = digits.read_images(path)[: complete.IMAGES]
    pixels = images.reshape(-1, 64)[:, order]

    def generate(prompts, tokens, samples, seed):
        assert tokens == 32 and prompts == [digits.text_of(row[:32]) for row in pixels]
        return [[" ".join(map(str, row[32:]))] * samples for row in pixels]

    model = SimpleNamespace(loaded=SimpleNamespace(config=config), generate=generate)
    monkeypatch.setattr(complete.bert_jax, "load", lambda directory: model)
    lines = complete.complete("run")
    assert all((line == images).all() for line in lines[[0, 2, 3, 4, 5]])
    assert (lines[1, :, :4] == images[:, :4]).all() and not lines[1, :, 4:].any()


def test_squares_of_a_picture_are_pixels():
    lines = np.zeros((2, 3, 8, 8), int)
    lines[1, 2, 3, 4] = 16
    lines[0, 0, 7, 0] = 8
    svg = ElementTree.fromstring(complete.draw(lines))
    squares = {path.get("fill-opacity"): path.get("d") for path in svg.iter() if path.get("d")}
    assert squares == {"1.00": "M22 12h1v1h-1z", "0.50": "M0 7h1v1h-1z"}


# --- Losses of all layers -------------------------------------------------------------------------


def test_the_auxiliary_loss_is_the_mean_of_those_of_the_layers_below():
    keys = *CHARACTERS, "objective.auxiliary=0.5"
    objective, params, batch = objective_of("long/config_characters.py", *keys)
    outputs = jax.jit(objective.outputs)(params, batch)
    metrics = objective.terms(outputs, batch)
    nats = []
    for row, place in np.argwhere(batch["next_weights"]):
        logits = np.float64(outputs["auxiliary_logits"][row, :, place])
        target = batch["tokens"][row, place + 1]
        nats.append(np.log(np.exp(logits).sum(axis=-1)) - logits[:, target])
    assert logits.shape == (2, VOCABULARY.size)
    expected = np.mean(nats, axis=1).sum()
    assert metrics["auxiliary_loss"][0] == pytest.approx(expected, rel=1e-5)
    totals = objective.weights(batch)
    assert totals["auxiliary"] == 2 * totals["lm"]  # the loss has half of it
    bits = metrics["bits_per_token"][0] * np.log(2)
    assert bits == pytest.approx(float(metrics["lm_loss"][0]), rel=1e-6)


def test_only_the_loss_of_a_layer_above_reaches_a_layer():
    keys = *CHARACTERS, "objective.auxiliary=0.5"
    objective, params, batch = objective_of("long/config_characters.py", *keys)

    @partial(jax.jit, static_argnums=1)
    def sizes(params, term):
        def loss(params):
            return objective.loss(params, batch, {term: 1.0}, 3, train=True)[0]

        return jax.tree.map(lambda x: abs(x).max(), jax.grad(loss)(params))

    auxiliary = sizes(params, "auxiliary")
    of_blocks = [max(jax.tree.leaves(auxiliary["network"][f"blocks_{n}"])) for n in range(3)]
    assert min(of_blocks[:2]) > 1e-5 and of_blocks[2] == 0
    assert all(auxiliary[f"auxiliary_heads_{n}"]["dense"]["kernel"] > 1e-5 for n in range(2))
    last = sizes(params, "lm")
    assert max(jax.tree.leaves(last["auxiliary_heads_0"])) == 0


def test_without_weight_there_are_no_auxiliary_losses():
    """It is the causal LM of the package."""
    objective, params, batch = objective_of("long/config_characters.py:plain", *CHARACTERS)
    config = load("long/config_characters.py:plain", *CHARACTERS, "objective.name=causal_lm")
    inner = objectives.make(config, VOCABULARY)
    assert objective.weights(batch).keys() == {"lm"} and "auxiliary_heads_0" not in params

    def compute(objective):
        loss = jax.jit(partial(objective.loss, train=False))
        return loss(params, batch, objective.weights(batch), 3)[0]

    assert compute(objective) == compute(inner)


def test_one_layer_has_no_auxiliary_losses():
    with pytest.raises(BadInput, match="objective.auxiliary"):
        load("long/config_characters.py", "model.layers=1")


@pytest.mark.slow
def test_halves_of_auxiliary_losses_add_up():
    keys = *CHARACTERS, "model.dropout=0.1", "model.attention_dropout=0.1"
    assert_halves_add_up(*objective_of("long/config_characters.py", *keys))

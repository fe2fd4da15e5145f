"""ELMo: words from characters, states from both ends of a row, the softmax over a sample, and published weights."""

import json

import h5py
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
from kits import examples  # which makes the modules of examples known
from kits.objectives import assert_halves_add_up
from kits.paths import data

# isort: split
from elmo import characters, lstm, softmax, stream, vectors

from bert_jax import config as configs
from bert_jax.errors import BadInput
from bert_jax.layers.embeddings import padded_size
from bert_jax.tasks import base as tasks
from bert_jax.tasks.feed import open_feed

NAME = "elmo/config.py"
CLS, SEP = 2, 3
PIECES = stream.PIECES
LONGEST = 60  # words and marks of a sentence


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """(directory, objective, parameters, a batch) of the small config, without dropout."""
    directory = tmp_path_factory.mktemp("elmo")
    made, batch = examples.prepare(NAME, directory, "model.dropout=0")
    params = jax.jit(made.init)(jax.random.key(0), batch)
    return directory, made, params, batch


def compute_states(made, params, batch, method="states"):
    apply = jax.jit(made.module.network.apply, static_argnames="method")
    return apply({"params": params["network"]}, batch, method=method)


def test_published_weights_give_the_published_vectors():
    """Those of three sentences at a time, whose states the next three begin with. The files have the last layer; it is
    computed from the others."""
    folder = data("elmo_fixture")
    network, params = vectors.load(folder / "options.json", folder / "lm_weights.hdf5")
    texts = json.loads((folder / "lm_embeddings_sentences.json").read_text())
    files = [h5py.File(folder / f"lm_embeddings_{number}.hdf5") for number in range(len(texts))]
    run = jax.jit(lambda params, *args: network.apply(params, *args, method="run"))
    before = None
    compared = 0
    for number in range(len(texts[0])):
        batch = vectors.batch_of([part[number].split() for part in texts], LONGEST)
        sizes = batch["sequence_ids"].sum(axis=1)
        states, before = run({"params": params}, batch, None, before)
        for row, file in enumerate(files):
            expected = np.concatenate([*file[str(number)]], axis=-1)
            actual = states[-1][row, 1 : sizes[row] - 1]
            np.testing.assert_allclose(actual, expected, rtol=0, atol=2e-6)
            compared += 1
    assert compared == 30


def test_vectors_of_a_text_are_written(tmp_path):
    """Those of the first sentence are the published ones: nothing was in front of it."""
    folder = data("elmo_fixture")
    texts = json.loads((folder / "lm_embeddings_sentences.json").read_text())
    (tmp_path / "text.txt").write_text(f"a word\n{texts[0][0]}\n")
    files = folder / "options.json", folder / "lm_weights.hdf5", tmp_path / "text.txt"
    vectors.main(*map(str, files), str(tmp_path / "vectors.npz"))
    arrays = np.load(tmp_path / "vectors.npz")
    expected = np.concatenate([*h5py.File(folder / "lm_embeddings_0.hdf5")["0"]], axis=-1)
    np.testing.assert_allclose(arrays["line_1"][-1], expected, rtol=0, atol=2e-6)
    assert arrays["line_0"].shape == (3, 2, expected.shape[1])


def test_characters_of_words_are_bytes_between_marks():
    code = characters.encode("né", 8)
    assert code == [259, ord("n") + 1, 0xC3 + 1, 0xA9 + 1, 260, 261, 261, 261]
    texts = ["a", "", "né", "sixsix", "sevenchars", "\x00"]
    expected = [characters.encode(text, 8) for text in texts[:-1]]
    np.testing.assert_array_equal(stream.encode(tf.constant(texts[:-1]), 8), expected)
    assert characters.encode_text(["a"], 5).tolist() == [
        [259, 257, 260, 261, 261],
        [259, ord("a") + 1, 260, 261, 261],
        [259, 258, 260, 261, 261],
    ]


def read_word(codes) -> str:
    """Returns the text of the characters of a word."""
    return bytes(code - 1 for code in codes.tolist() if 1 <= code <= 256).decode(errors="ignore")


def test_windows_of_heldout_text_have_each_word_once_from_each_side(world):
    directory, *_ = world
    config = examples.load(NAME, f"store={directory}/store", "task.characters=40")
    feed = open_feed(config)
    split = feed.store.splits["heldout"]
    tokenizer = feed.store.tokenizer
    expected = []
    ids = []
    begin = 0
    for end in split.sentence_ends[split.document_ends - 1]:
        document = split.tokens[begin:end]
        starts = [*np.flatnonzero(tokenizer.word_starts[document]), len(document)]
        parts = [document[start:stop] for start, stop in zip(starts, starts[1:], strict=False)]
        texts = [
            "".join(tokenizer.pieces[id].removeprefix("##") for id in part[:PIECES])
            for part in parts
        ]
        expected += ["", *(text[:38] for text in texts), ""]
        ids += [CLS, *(part[0] if len(part) == 1 else 1 for part in parts), SEP]
        begin = end
    phase = configs.phases(config)[0]
    dataset = tasks.make(config, feed.store)
    rows = dataset.rows(phase, "heldout", 0)
    rows = rows[np.arange(len(rows))]
    batch = dataset.make(phase, "heldout", tf.constant(rows), None)
    batch = {name: array.numpy() for name, array in batch.items()}
    real = batch["sequence_ids"] > 0
    real[1:, 0] = False  # the last word of the window before
    assert batch["tokens"][real].tolist() == ids
    assert [read_word(codes) for codes in batch["characters"][real]] == expected
    codes = batch["characters"][real][:, 1]
    marks = {characters.BEGIN: CLS, characters.END: SEP}
    assert [marks[code] for code in codes if code in marks] == [
        id for id in ids if id in (CLS, SEP)
    ]
    for name, shift, left_out in (("next", -1, CLS), ("previous", 1, SEP)):
        targets = np.roll(batch["tokens"], shift, axis=1)[batch[f"{name}_weights"] > 0]
        # Each word and the mark on this side of each document, but the first word from the left and the last one from
        # the right.
        assert sorted(targets) == sorted(id for id in ids if id != left_out)


def test_a_causal_model_with_these_words_has_the_same_targets(world, tmp_path):
    """The GPT-2 to compare with, whose vocabulary is that of the store without the parts of words."""
    directory, *_ = world
    config = examples.load(NAME, f"store={directory}/store")
    tokenizer = open_feed(config).store.tokenizer
    whole = [piece for piece in tokenizer.pieces if not piece.startswith("##")]
    (tmp_path / "words.txt").write_text("\n".join(whole) + "\n")
    keys = [f"{key}={value}" for key, value in examples.SMALL[NAME].items() if "corpus" in key]
    keys += ["corpus.format=lines", f"store={tmp_path}/store"]
    name = examples.path_of("elmo/config_wikipedia.py:gpt")
    causal = configs.load(name, [*keys, f"tokenizer.path={tmp_path}/words.txt"])
    targets = []
    for each in (config, causal):
        feed = open_feed(each, 0)
        (phase,) = configs.phases(each)
        dataset = tasks.make(each, feed.store)
        rows = dataset.rows(phase, "heldout", 0)
        batch = dataset.make(phase, "heldout", tf.constant(rows[np.arange(len(rows))]), None)
        ids = np.roll(batch["tokens"], -1, axis=1)[batch["next_weights"].numpy() > 0]
        targets.append([feed.store.tokenizer.pieces[number] for number in ids])
    assert targets[0] == targets[1]


def test_each_way_sees_the_words_on_its_side(world):
    _, made, params, batch = world
    network = made.module.network
    width = network.width
    table = params["network"]["words"]["filters"]["characters"]

    def changed_places(place: int):
        """Which places change with the characters of one word."""
        other = batch["characters"].copy()
        other[:, place, 1] = 100 + other[:, place, 1] % 50
        states = [
            compute_states(made, params, batch | {"characters": each})
            for each in (other, batch["characters"])
        ]
        difference = abs(states[0][-1] - states[1][-1]).max(0)
        return [
            np.flatnonzero(part.max(-1) > 0)
            for part in (difference[:, :width], difference[:, width:])
        ]

    assert table.shape[0] == characters.SIZE
    from_left, from_right = changed_places(9)
    assert from_left.min() == 9 and from_left.max() == 23  # beyond the range of its gradient
    assert from_right.max() == 9 and from_right.min() == 0


def test_gradients_stop_between_ranges():
    layer = lstm.LSTM(cell=6, width=4, clip=3.0, unroll=5)
    x = jax.random.normal(jax.random.key(0), (2, 12, 3))
    is_real = jnp.ones((2, 12), bool)
    params = layer.init(jax.random.key(1), x, is_real)

    def last_of(place: int):
        return jax.grad(lambda x: layer.apply(params, x, is_real)[0][:, place].sum())(x)

    depends = abs(last_of(7)).max((0, 2)) > 0
    assert np.flatnonzero(depends).tolist() == [5, 6, 7]


def test_padding_and_parts_of_a_row_change_no_state():
    """A row in two parts, with padding behind the first one, whose last state the second one begins with."""
    layer = lstm.LSTM(cell=6, width=4, clip=0.2, unroll=50)
    x = 3 * jax.random.normal(jax.random.key(0), (2, 12, 3))
    is_real = jnp.ones((2, 12), bool)
    params = layer.init(jax.random.key(1), x, is_real)
    whole, last = layer.apply(params, x, is_real)
    padded = jnp.pad(x[:, :7], [(0, 0), (0, 5), (0, 0)], constant_values=9)
    first, state = layer.apply(params, padded, jnp.arange(12)[None] < jnp.full((2, 1), 7))
    second, end = layer.apply(params, x[:, 7:], is_real[:, 7:], state)
    np.testing.assert_allclose(jnp.concatenate([first[:, :7], second], 1), whole, atol=1e-6)
    jax.tree.map(lambda *pair: np.testing.assert_allclose(*pair, atol=1e-6), end, last)
    assert abs(whole).max() == pytest.approx(0.2) and abs(last[0]).max() == pytest.approx(0.2)


def test_a_sample_estimates_sums_over_all_words():
    """Its words are different, and with their corrections its mean of a sum is that sum."""
    size, count, draws = 300, 40, 4000
    values = np.linspace(0.5, 2, size)[::-1]

    @jax.jit
    @jax.vmap
    def estimate(key):
        sample = softmax.draw(key, size, count)
        weights = jnp.exp(-sample.corrections[sample.words])
        return (jnp.asarray(values)[sample.words] * weights).sum(), sample.words

    sums, drawn = estimate(jnp.arange(draws, dtype=jnp.uint32))
    assert all(len({*row}) == count for row in np.asarray(drawn[:50]).tolist())
    deviation = np.std(sums) / draws**0.5
    assert abs(np.mean(sums) - values.sum()) < 4 * deviation < 0.05 * values.sum()
    # The first word of a sample is log-uniform.
    shares = np.bincount(np.asarray(drawn[:, 0]), minlength=size) / draws
    assert shares[:3] == pytest.approx(softmax.probabilities(size)[:3], abs=0.03)
    assert softmax.probabilities(size).sum() == pytest.approx(1, abs=1e-5)


def test_the_loss_over_a_sample_is_that_of_tensorflow():
    size, count, width = 90, 30, 8
    draw = np.random.default_rng(0)
    x = draw.normal(size=(2, 5, width)).astype(np.float32)
    targets = draw.integers(0, 20, (2, 5)).astype(np.int32)
    float32 = jnp.dtype(jnp.float32)
    layer = softmax.Softmax(size, width, float32, float32)
    params = layer.init(jax.random.key(0), x, targets)["params"]
    params["bias"] = draw.normal(size=padded_size(size)).astype(np.float32)
    sample = softmax.draw(jnp.uint32(5), size, count)
    assert {*targets.ravel().tolist()} & {*np.asarray(sample.words).tolist()}
    counts = np.exp(np.asarray(sample.corrections))
    expected = tf.nn.sampled_softmax_loss(
        weights=np.asarray(params["embedder"]["words"]),
        biases=params["bias"],
        labels=targets.reshape(-1, 1).astype(np.int64),
        inputs=x.reshape(-1, width),
        num_sampled=count,
        num_classes=size,
        sampled_values=(
            np.asarray(sample.words, np.int64),
            counts[targets.reshape(-1, 1)],
            counts[np.asarray(sample.words)],
        ),
    )
    actual = layer.apply({"params": params}, x, targets, sample)
    np.testing.assert_allclose(actual.ravel(), expected.numpy(), atol=1e-5)


def test_too_little_text_is_refused(world):
    directory, *_ = world
    config = examples.load(NAME, f"store={directory}/store", "phases.main.length=1000000")
    with pytest.raises(BadInput, match="phases.main.length"):
        tasks.make(config, open_feed(examples.load(NAME, f"store={directory}/store")).store)


def test_halves_of_a_batch_share_a_sample(world):
    _, made, params, batch = world
    assert_halves_add_up(made, params, batch)

    def loss(key, train):
        return float(made.loss(params, batch, made.weights(batch), jnp.uint32(key), train=train)[0])

    full = loss(1, False)
    assert loss(1, True) < full  # over fewer words
    assert loss(1, True) != loss(2, True)
    assert loss(2, False) == full == pytest.approx(2 * np.log(600), rel=0.05)

"""Recurrent translators: cells, scores, reach, packed rows, and decoding."""

import re
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kits import examples
from kits.objectives import assert_halves_add_up
from recurrent import attention, cells
from recurrent.attention import Attention, Options, Places
from recurrent.encoder import last_states

from bert_jax import config as configs
from bert_jax.errors import BadInput
from bert_jax.layers import decoding
from bert_jax.objectives import base
from bert_jax.tokenizers.special_tokens import Vocabulary

NAME = "recurrent/config.py"
CLS, SEP = 2, 3
B, N, L, D = 3, 4, 7, 8
NETWORKS = {
    "additive": ["model.layers=1", "model.cell=gru", "model.reach=global"],
    "none": ["model.score=none", "model.reach=global"],
    "dot": ["model.score=dot", "model.input_feeding=False", "model.reach=local_m"],
    "general": ["model.score=general"],
    "location": ["model.score=location", "model.input_feeding=False", "model.cell=gru"],
    "cosine": ["model.score=cosine", "model.layers=1", "model.reach=global"],
}


# --- Cells ----------------------------------------------------------------------------------------


def run_cell(kind: str, x, weights, bias, kernel, dtype=jnp.float32):
    """Returns the states h [B, L, D] of a cell that reads x."""
    projected = jnp.asarray(x @ weights + bias, dtype)
    is_first = jnp.broadcast_to(jnp.arange(x.shape[1]) == 0, x.shape[:2])
    sizes = D * np.cumsum(cells.KINDS[kind].kernels)
    kernels = jnp.split(jnp.asarray(kernel, dtype), sizes[:-1], axis=1)
    return np.asarray(cells.scan(kind, False, dtype, projected, is_first, kernels=kernels)[0])


@pytest.mark.slow
@pytest.mark.parametrize("kind", cells.KINDS)
def test_cells_are_those_of_keras(kind):
    """The gates of its GRU, with the reset gate before the product, are z, r and the new state; z weighs the old state,
    so it is u with the opposite sign."""
    import keras

    draw = np.random.default_rng(0)
    x = draw.normal(size=(B, L, D)).astype(np.float32)
    layer = keras.layers.LSTM(D, return_sequences=True)
    if kind == "gru":
        layer = keras.layers.GRU(D, reset_after=False, return_sequences=True)
    layer.build(x.shape)
    arrays = [draw.normal(size=weight.shape, scale=0.7) for weight in layer.get_weights()]
    layer.set_weights(arrays)

    def reorder(array):
        z, r, new = np.split(array, 3, axis=-1)
        return np.concatenate([r, -z, new], axis=-1)

    if kind == "gru":
        arrays = map(reorder, arrays)
    weights, kernel, bias = arrays
    if kind == "lstm":
        bias = bias - np.repeat([0, cells.FORGET, 0, 0], D)
    np.testing.assert_allclose(run_cell(kind, x, weights, bias, kernel), layer(x), atol=1e-6)


@pytest.mark.full
def test_lstm_is_that_of_pytorch():
    """In float64."""
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(0).normal(size=(B, L, D))
    layer = torch.nn.LSTM(D, D, batch_first=True, dtype=torch.float64)
    weights, kernel, *biases = (array.detach().numpy() for array in layer.parameters())
    forget = np.repeat([0, cells.FORGET, 0, 0], D)
    expected = layer(torch.tensor(x))[0].detach().numpy()
    with jax.enable_x64(True):
        arrays = weights.T, sum(biases) - forget, kernel.T
        np.testing.assert_allclose(run_cell("lstm", x, *arrays, jnp.float64), expected, atol=1e-12)


# --- Scores and reach -----------------------------------------------------------------------------


class World(NamedTuple):
    """Attention with random weights, in rows of packed sequences and padding."""

    shares: np.ndarray  # [B, N, L]
    vectors: np.ndarray  # [B, N, D], what `attend` returns
    weights: dict  # {name: float64[I, O]}
    h: np.ndarray  # float64[B, N, D]
    states: np.ndarray  # float64[B, L, D]
    is_seen: np.ndarray  # bool[B, N, L], whether they are of one sequence
    places: Places
    source: Places


SOURCE = Places(
    jnp.array([[1, 1, 1, 1, 2, 2, 0], [1, 1, 1, 1, 1, 2, 2], [1] * 7]),
    jnp.array([[0, 1, 2, 3, 0, 1, 0], [0, 1, 2, 3, 4, 0, 1], [*range(7)]]),
)
PLACES = Places(
    jnp.array([[1, 1, 2, 2], [1, 2, 2, 2], [1] * 4]),
    jnp.array([[0, 1, 0, 1], [0, 0, 1, 2], [*range(4)]]),
)


def make_world(score: str, reach: str = "global", window: int = 2) -> World:
    draw = np.random.default_rng(0)
    options = Options(score, reach, window, jnp.float32)
    module = Attention(options, D, 16, 0.5)
    h, states = (jnp.asarray(draw.normal(size=(B, size, D)), jnp.float32) for size in (N, L))

    def apply(module, h, states):
        arrays = options, module.weights(), h, PLACES, module.memorize(states, SOURCE)
        return attention.weigh(*arrays), attention.attend(*arrays)

    variables = module.init(jax.random.key(1), h, states, method=apply)
    shares, vectors = module.apply(variables, h, states, method=apply)
    layers = variables["params"].items()
    weights = {name: np.asarray(jax.tree.leaves(layer)[0], float) for name, layer in layers}
    is_seen = np.asarray(PLACES.ids)[..., None] == np.asarray(SOURCE.ids)[:, None]
    arrays = [np.asarray(array, float) for array in (h, states)]
    return World(np.asarray(shares), np.asarray(vectors), weights, *arrays, is_seen, PLACES, SOURCE)


def attend_by_keras(layer, world: World, queries, keys):
    """Returns the result and the shares of one of Keras' layers, in which each query sees its own sequence."""
    shares = []
    vectors = []
    for row in range(B):
        for query in range(N):
            inputs = queries[row, query][None, None], world.states[row][None], keys[row][None]
            masks = [None, world.is_seen[row, query][None]]
            vector, share = layer(
                [np.float32(array) for array in inputs], mask=masks, return_attention_scores=True
            )
            vectors.append(vector)
            shares.append(share)
    return np.reshape(vectors, (B, N, D)), np.reshape(shares, (B, N, L))


@pytest.mark.slow
@pytest.mark.parametrize("score", ["dot", "general", "additive"])
def test_scores_are_those_of_keras(score):
    import keras

    world = make_world(score)
    queries, keys, layer = world.h, world.states, keras.layers.Attention()
    if score != "dot":
        keys = keys @ world.weights["key"]
    if score == "additive":
        queries = queries @ world.weights["query"]
        layer = keras.layers.AdditiveAttention()
        layer.build([(1, 1, D), (1, L, D), (1, L, D)])
        layer.set_weights([world.weights["vector"][:, 0]])
    contexts, shares = attend_by_keras(layer, world, queries, keys)
    np.testing.assert_allclose(world.shares, shares, atol=1e-6)
    joined = np.concatenate([contexts, world.h], axis=-1)
    np.testing.assert_allclose(world.vectors, np.tanh(joined @ world.weights["combine"]), atol=2e-6)


def reference_shares(world: World, score, center, window: int, factor) -> np.ndarray:
    """Returns the shares by plain loops.

    score: (h_t, h_s, s). center: (h_t, t, S), of the window. factor: (distance from the center).
    """
    shares = np.zeros((B, N, L))
    for row, query in np.ndindex(B, N):
        h = world.h[row, query]
        position = int(world.places.positions[row, query])
        own = np.flatnonzero(world.is_seen[row, query])
        middle = center(h, position, len(own))
        powers = {}
        for number, place in enumerate(own):
            if abs(number - middle) <= window:
                powers[place] = np.exp(score(h, world.states[row, place], number))
        for place, power in powers.items():
            distance = place - own[0] - middle
            shares[row, query, place] = power / sum(powers.values()) * factor(distance)
    return shares


def everywhere(*_) -> float:
    return 0.0


def one(_) -> float:
    return 1.0


def test_location_scores_are_of_the_position_in_the_sequence():
    world = make_world("location")

    def score(h, state, number):
        return (h @ world.weights["query"])[number]

    expected = reference_shares(world, score, everywhere, L, one)
    np.testing.assert_allclose(world.shares, expected, atol=1e-6)


def test_cosine_scores_do_not_depend_on_lengths():
    world = make_world("cosine")

    def score(h, state, _):
        lengths = np.linalg.norm(h) * np.linalg.norm(state)
        return attention.STRENGTH * h @ state / lengths

    expected = reference_shares(world, score, everywhere, L, one)
    np.testing.assert_allclose(world.shares, expected, atol=3e-6)


@pytest.mark.parametrize("window", [1, 3])
def test_local_p_is_a_loop_over_the_window(window):
    """p_t = S sigmoid(v . tanh(W h_t)), and a gaussian whose deviation is half the window (arXiv:1508.04025)."""
    world = make_world("general", "local_p", window)

    def score(h, state, _):
        return h @ (state @ world.weights["key"])

    def center(h, _, size):
        prediction = np.tanh(h @ world.weights["hidden"]) @ world.weights["center"][:, 0]
        return size / (1 + np.exp(-prediction))

    def gaussian(distance):
        return np.exp(-(distance**2) / (2 * (window / 2) ** 2))

    expected = reference_shares(world, score, center, window, gaussian)
    assert 0 < expected.sum(-1).min() < expected.sum(-1).max() < 1
    np.testing.assert_allclose(world.shares, expected, atol=1e-6)


def test_local_m_is_a_window_around_the_position():
    """Of the target; behind the end of the source, around its last token."""
    world = make_world("dot", "local_m", 1)

    def center(_, position, size):
        return min(position, size - 1)

    expected = reference_shares(world, lambda h, state, _: h @ state, center, 1, one)
    np.testing.assert_allclose(world.shares, expected, atol=1e-6)
    assert (expected[1, 3, 5:] > 0).all()  # the third token for a source of two


@pytest.mark.parametrize("score", attention.SCORES)
def test_scores_of_bfloat16_are_computed_in_float32(score):
    """So those of the same states in float32, and the same weights, are at most as far as the products' inputs."""
    draw = np.random.default_rng(0)
    h, states = (draw.normal(size=(B, size, 64), scale=2) for size in (N, L))
    h, states = (jnp.asarray(array, jnp.bfloat16) for array in (h, states))
    memory = attention.Memory(states, states, SOURCE)
    shapes = {"query": (64, 64), "vector": (64, 1)}
    weights = {name: draw.integers(-2, 3, shape) / 4 for name, shape in shapes.items()}

    def product(name, x):
        return x @ jnp.asarray(weights[name], x.dtype)

    scores = attention.SCORES[score](h, memory, product)
    assert scores.dtype == jnp.float32
    wide = attention.Memory(*(x.astype(jnp.float32) for x in memory[:2]), SOURCE)
    expected = attention.SCORES[score](h.astype(jnp.float32), wide, product)
    tolerance = {"additive": 0.1, "cosine": 0.02}.get(score, 1e-4)
    np.testing.assert_allclose(scores, expected, atol=tolerance)


# --- Networks -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def first_batch(tmp_path_factory):
    """A batch of rows of several pairs, and the vocabulary."""
    made, batch = examples.prepare(NAME, tmp_path_factory.mktemp("numbers"))
    size = made.module.network.encoder.embedder.vocabulary_size
    return batch, Vocabulary(size=size, pad=0, unk=1, cls=CLS, sep=SEP, mask=4)


class Network(NamedTuple):
    objective: Any
    params: dict
    batch: dict

    def apply(self, *inputs, **options):
        """Calls the network, by default to compute the vectors at the tokens of the target."""
        module = self.objective.module.network
        return module.apply({"params": self.params["network"]}, *inputs, **options)

    def logits(self, batch):
        return self.apply(self.apply(batch), method="vocabulary_logits")


@pytest.fixture(scope="module", params=NETWORKS)
def network(request, first_batch) -> Network:
    batch, vocabulary = first_batch
    changes = [*NETWORKS[request.param], "task.extra_pieces=9", "objective.beams=3"]
    made = base.make(examples.load(NAME, *changes), vocabulary)
    return Network(made, jax.jit(made.init)(jax.random.key(0), batch), batch)


SIDES = "", "target_"


def pair_of(batch, number: int) -> dict:
    """Returns the rows with one pair of each alone, moved to the beginning."""
    alone = dict(batch)
    for side in SIDES:
        ids = np.asarray(batch[f"{side}sequence_ids"])
        order = np.argsort(ids != number, axis=1, kind="stable")
        is_own = np.take_along_axis(ids == number, order, axis=1)
        for name in ("tokens", "positions", "sequence_ids"):
            moved = np.take_along_axis(np.asarray(batch[side + name]), order, axis=1)
            alone[side + name] = np.where(is_own, moved, 0)
        alone[f"{side}sequence_ids"] = is_own.astype(np.int32)
    return alone


@pytest.mark.full
def test_halves_of_a_batch_add_up(network):
    assert_halves_add_up(network.objective, network.params, network.batch)


def test_packed_pairs_have_the_logits_of_each_alone(network):
    logits = jax.jit(network.logits)
    together = np.asarray(logits(network.batch))
    ids = np.asarray(network.batch["target_sequence_ids"])
    assert (ids == 2).any(axis=1).mean() > 0.5
    for number in (1, 2):
        alone = pair_of(network.batch, number)
        actual = np.asarray(logits(alone))[alone["target_sequence_ids"] == 1]
        np.testing.assert_allclose(actual, together[ids == number], atol=1e-5)


def test_a_token_reads_its_source_and_what_is_in_front_of_it(network):
    """By the gradient of its vector as to the embeddings of all tokens: none of other pairs or of later tokens."""
    module = network.objective.module.network
    batch = {name: array[:1] for name, array in network.batch.items()}
    place = 4
    assert batch["target_sequence_ids"][0, place] == 1

    def read(embedded):
        class Embedded(type(module.encoder)):
            def embed(self, tokens, keys, number=0):
                return embedded["target_" if number else ""]

        encoder = Embedded(module.encoder.embedder, module.encoder.sizes)
        changed = module.clone(encoder=encoder)
        vectors = changed.apply({"params": network.params["network"]}, batch)
        return jnp.square(vectors[0, place]).sum()

    draw = np.random.default_rng(0)
    shape = 1, 32, 32
    embedded = {side: jnp.asarray(draw.normal(size=shape), jnp.float32) for side in SIDES}
    gradients = jax.jit(jax.grad(read))(embedded)
    source, target = (np.abs(gradients[side]).max(axis=-1)[0] for side in SIDES)
    np.testing.assert_array_equal(source > 0, batch["sequence_ids"][0] == 1)
    np.testing.assert_array_equal(target > 0, np.arange(32) <= place)


def test_each_hypothesis_is_decoded_as_it_is_scored(network):
    """The score of each of three is that of its tokens, computed at once without a cache."""
    pair = pair_of(network.batch, 1)
    decoded = jax.tree.map(np.asarray, jax.jit(network.objective.outputs)(network.params, pair))
    logits = jax.jit(network.logits)
    length = pair["target_tokens"].shape[1]
    search = decoding.Search(3)
    for beam in range(3):
        tokens = decoded["translations"][:, beam, : length - 1]
        sizes = decoded["lengths"][:, beam]
        inside = np.arange(length) <= sizes[:, None]
        target = {
            "target_tokens": np.where(inside, np.insert(tokens, 0, CLS, axis=1), 0),
            "target_positions": np.arange(length) * inside,
            "target_sequence_ids": inside.astype(np.int32),
        }
        log_probs = np.asarray(jax.nn.log_softmax(logits(pair | target)))
        assert beam or (sizes > 0).all()
        for row, size in enumerate(sizes):
            if not size:  # an untrained network may not finish three
                continue
            total = log_probs[row, np.arange(size), tokens[row, :size]].sum()
            if SEP in tokens[row]:
                total /= decoding.length_penalty(size, search)
            assert decoded["scores"][row, beam] == pytest.approx(total, abs=1e-4)


def test_probabilities_are_captured_for_the_page_of_attention(network):
    """They add up to 1, and stay within a pair."""

    def is_chosen(_, name):
        return name == "probabilities"

    if "context" not in network.params["network"]["decoder"]:
        with pytest.raises(BadInput):
            network.objective.capture(network.params, network.batch, is_chosen)
        return
    _, arrays = network.objective.capture(network.params, network.batch, is_chosen)
    [(path, shares)] = arrays.items()
    assert "/context/" in path and shares.shape[1] == 1
    ids, others = (network.batch[f"{side}sequence_ids"] for side in reversed(SIDES))
    is_real = ids > 0
    np.testing.assert_allclose(shares[:, 0].sum(-1)[is_real], 1, atol=1e-5)
    is_other = (ids[..., None] != others[:, None]) & is_real[..., None]
    assert shares[:, 0][is_other].max() == 0


def test_a_decoder_begins_with_the_last_states_of_its_source():
    """Forward after the last token, and backward after the first one."""
    forward = jnp.arange(6.0)[None, :, None]
    source_ids = jnp.array([[1, 1, 2, 2, 2, 0]])
    target_ids = jnp.array([[1, 2, 2]])
    [(h,)] = last_states([((forward,), (-forward,))], source_ids, target_ids)
    np.testing.assert_array_equal(h, [[[1, 0], [4, -2], [4, -2]]])


def test_dropout_is_that_of_a_row_and_differs_at_each_step(first_batch):
    """Between the layers of the decoder, too: otherwise some weights of one row would have no gradients."""
    batch, vocabulary = first_batch
    made = base.make(examples.load(NAME, "model.dropout=0.5"), vocabulary)
    params = jax.jit(made.init)(jax.random.key(0), batch)["network"]
    batch = {name: np.asarray(array)[[0, 0, 0]] for name, array in batch.items()}

    @jax.jit
    def apply(params):
        keys = jnp.array([0, 0, 1], jnp.uint32)
        vectors = made.module.network.apply({"params": params}, batch, keys)
        states = made.module.network.apply({"params": params}, batch, keys, method="states")
        return jnp.square(vectors[0]).sum(), (vectors, states)

    (_, (vectors, states)), gradients = jax.value_and_grad(apply, has_aux=True)(params)
    np.testing.assert_array_equal(vectors[0], vectors[1])
    assert (vectors[0] != vectors[2]).mean() > 0.5
    assert 0.4 < np.mean(vectors[0] == 0) < 0.6
    assert 0.4 < np.mean(states[0][0, :20] == 0) < 0.6  # the embeddings of the source
    is_kept = (vectors[0] != 0) & (vectors[2] != 0)
    assert (vectors[0] != vectors[2])[is_kept].mean() > 0.9  # not in front of the logits alone
    gradient = gradients["decoder"]["blocks_1"]["input"]["kernel"]
    assert (abs(gradient).max(axis=1) > 0).all()


def test_wrong_keys_are_refused():
    for change in ("model.width=33", "model.score=concat", "model.reach=local", "model.window=0"):
        with pytest.raises(BadInput, match=change.partition("=")[0]):
            examples.load(NAME, change)
    with pytest.raises(BadInput, match="objective.name"):
        examples.load(NAME, "objective.name=mlm", "task.name=sentence_pairs")


@pytest.mark.parametrize("score", [*attention.SCORES, "none", "transformer"])
def test_the_configs_of_the_table_are_valid(score):
    path = examples.path_of(f"recurrent/config_multi30k.py:{score}")
    config = configs.load(path, ["task.data=multi30k"])
    assert config.model.get("score", "transformer") == score
    places = config.phases.main.length * config.phases.main.batch
    assert places == pytest.approx(8192, rel=0.02)


# --- BLEU by length -------------------------------------------------------------------------------


def write_lines(path, texts: list[str]) -> str:
    path.write_text("\n".join(texts) + "\n")
    return str(path)


def make_translations(count: int) -> tuple[list[str], list[str], list[str]]:
    """Returns references of 8 to 22 words, and translations in which words are wrong, of the second in more."""
    draw = np.random.default_rng(0)
    references = [[*map(str, draw.integers(0, 50, draw.integers(8, 23)))] for _ in range(count)]

    def damage(words, share):
        return " ".join("x" if draw.random() < share else word for word in words)

    better, worse = ([damage(words, share) for words in references] for share in (0.1, 0.2))
    return [" ".join(words) for words in references], better, worse


def test_intervals_of_bleu_are_as_wide_as_those_of_sacrebleu():
    metrics = pytest.importorskip("sacrebleu.metrics")
    from recurrent import bleu

    references, *systems = make_translations(200)
    arrays = [bleu.statistics(texts, references) for texts in systems]
    (first, same), (second, worse) = bleu.compare(arrays, draws=200)
    metric = metrics.BLEU(tokenize="none")
    for texts, (value, low, high) in zip(systems, (first, second), strict=True):
        expected = metric.corpus_score(texts, [references], n_bootstrap=1000)
        half = float(re.search(r"± ([\d.]+)", str(expected))[1])
        assert value == pytest.approx(expected.score)
        assert low < value < high and high - low == pytest.approx(2 * half, rel=0.2)
    assert same == (0, 0, 0)
    value, low, high = worse
    assert value == pytest.approx(second[0] - first[0])
    assert low < value < high < 0


def test_sentences_are_grouped_by_the_words_of_the_source(tmp_path, capsys):
    metrics = pytest.importorskip("sacrebleu.metrics")
    from recurrent import bleu

    references, better, worse = make_translations(60)
    texts = {"source": references, "target": references, "better": better, "worse": worse}
    files = {name: write_lines(tmp_path / f"{name}.txt", text) for name, text in texts.items()}
    sides = "--source", files["source"], "--reference", files["target"]
    bleu.main([*sides, files["better"], files["worse"]])
    printed = capsys.readouterr().out
    sizes = np.array([len(text.split()) for text in references])
    assert printed.count("better") == printed.count("worse") == len(bleu.GROUPS)
    chosen = np.flatnonzero(sizes > 15)
    texts = [better[number] for number in chosen], [[references[number] for number in chosen]]
    score = metrics.BLEU(tokenize="none").corpus_score(*texts).score
    assert (
        f"over 15 words: {len(chosen)} sentences\n    better {'':14}BLEU {score:6.2f} [" in printed
    )

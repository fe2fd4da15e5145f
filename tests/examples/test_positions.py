"""Relative positions: gathered and skewed scores, what they cost in memory, and the text of melodies and chorales."""

import json
import lzma
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kits import examples
from kits.slices import needs_libtpu
from kits.small import VOCABULARY
from positions import attention, chorales, melodies

from bert_jax import config as configs
from bert_jax.cli import main
from bert_jax.data.preparation.prepare import prepare
from bert_jax.data.store import open_store
from bert_jax.errors import BadInput
from bert_jax.layers import decoding
from bert_jax.layers.attention_spec import Mask, Spec
from bert_jax.layers.blocks import Inputs, LayerOptions
from bert_jax.models import base as models
from bert_jax.objectives import base
from bert_jax.tasks.feed import open_feed

NAME = "positions/config.py"
KINDS = {
    "keys": ["model.relative=gather"],
    "values": ["model.relative=gather", "model.relative_values=True"],
    "skew": ["model.relative=skew"],
}
ROWS, HEADS, SIZE = 2, 3, 4
OPTIONS = LayerOptions("gelu", 0.5, 0.5, 1e-5, jnp.float32, bias=True)
SIZES = np.array([3, 10, 24, 1])  # tokens of each prompt
NEW = 6  # tokens that continue it


def random_scores(length: int, distance: int) -> tuple:
    """Returns random queries [B, L, H, K] and vectors [H, distance + 1, K]."""
    draw = np.random.default_rng(length)
    queries = draw.normal(size=(ROWS, length, HEADS, SIZE)).astype(np.float32)
    vectors = draw.normal(size=(HEADS, distance + 1, SIZE)).astype(np.float32)
    return jnp.asarray(queries), jnp.asarray(vectors)


def scores_by_loops(queries, vectors) -> np.ndarray:
    """Returns float64[B, H, L, L], 0 where a key is behind its query."""
    rows, length, heads, _ = queries.shape
    scores = np.zeros((rows, heads, length, length))
    for row, head, i, j in np.ndindex(scores.shape):
        if j <= i:
            vector = vectors[head, min(i - j, vectors.shape[1] - 1)]
            scores[row, head, i, j] = np.float64(queries[row, i, head]) @ np.float64(vector)
    return scores


@pytest.mark.parametrize("distance", [1, 5, 40])
@pytest.mark.parametrize("length", [1, 2, 7, 19])
def test_scores_are_those_of_loops(length, distance):
    """Gathered, skewed, and chosen by positions, of which one row has other ones."""
    queries, vectors = random_scores(length, distance)
    expected = scores_by_loops(np.asarray(queries), np.asarray(vectors))
    distances = attention.distances_between((), length, length)
    positions = jnp.arange(length) + jnp.array([[0], [9]])
    of_rows = attention.distances_between((positions, positions), length, length)
    computed = {
        "gathered": attention.gathered_scores(queries, vectors, distances),
        "gathered by positions": attention.gathered_scores(queries, vectors, of_rows),
        "chosen by positions": attention.scores_by_position(queries, vectors, of_rows),
        "skewed": attention.skewed_scores(queries, vectors),
    }
    for name, scores in computed.items():
        np.testing.assert_allclose(np.tril(scores), expected, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("length", [1, 2, 3, 8, 33, 100])
def test_a_skewed_number_goes_to_its_key(length):
    """Exactly: each row has its numbers in the opposite order of distances."""
    products = np.arange(length * length).reshape(1, length, length)
    moved = np.asarray(attention.skew(jnp.asarray(products)))[0]
    for i in range(length):
        assert [*moved[i, : i + 1]] == [products[0, i, length - 1 - i + j] for j in range(i + 1)]


def attention_by_loops(layer, params, x, ids) -> np.ndarray:
    """Returns [B, L, D] of attention to x[B, L, D] (arXiv:1803.02155, equations 3 and 4), one pair at a time."""
    rows, length, _ = x.shape
    mixed = np.zeros((rows, length, HEADS, SIZE))
    states = {}
    for name in ("query", "key", "value"):
        kernel, bias = params[name]["kernel"], params[name]["bias"]
        states[name] = (x @ kernel + bias).reshape(rows, length, HEADS, SIZE)
    for row, head, i in np.ndindex(rows, HEADS, length):
        seen = [j for j in range(i + 1) if ids[row, j] == ids[row, i] > 0]
        places = [min(i - j, layer.distance) for j in seen]
        of_keys = [params["relative_keys"][head, place] for place in places]
        scores = [
            states["query"][row, i, head] @ (states["key"][row, j, head] + vector) / SIZE**0.5
            for j, vector in zip(seen, of_keys, strict=True)
        ]
        weights = np.exp(scores) / np.exp(scores).sum()
        for j, place, weight in zip(seen, places, weights, strict=True):
            value = states["value"][row, j, head]
            if layer.has_values:
                value = value + params["relative_values"][head, place]
            mixed[row, i, head] += weight * value
    return mixed.reshape(x.shape) @ params["out"]["kernel"] + params["out"]["bias"]


@pytest.mark.parametrize("skewed, has_values", [(False, False), (False, True), (True, False)])
def test_attention_is_that_of_loops(skewed, has_values):
    """With rows of two texts and of a text with padding; at real tokens."""
    spec = Spec("xla", SIZE, causal=True)
    layer = attention.Attention(
        HEADS, spec, OPTIONS, distance=3, skewed=skewed, has_values=has_values
    )
    x = np.random.default_rng(0).normal(size=(ROWS, 9, HEADS * SIZE)).astype(np.float32)
    ids = np.array([[1, 1, 1, 1, 2, 2, 2, 2, 2], [1, 1, 1, 1, 1, 1, 1, 0, 0]], np.int32)
    inputs = Inputs(Mask(jnp.asarray(ids)))
    params = layer.init(jax.random.key(0), x, inputs, None)["params"]
    computed, _ = jax.jit(layer.apply)({"params": params}, x, inputs, None)
    expected = attention_by_loops(layer, jax.tree.map(np.float64, params), np.float64(x), ids)
    np.testing.assert_allclose(computed[ids > 0], expected[ids > 0], atol=1e-6)


@pytest.mark.full
def test_attention_is_that_of_transformers():
    """Of Wav2Vec2-BERT, whose heads share their vectors, with a causal mask."""
    torch = pytest.importorskip("torch")
    from transformers.models.wav2vec2_bert import modeling_wav2vec2_bert as theirs

    torch.manual_seed(0)
    width, length, distance = HEADS * SIZE, 12, 5
    config = theirs.Wav2Vec2BertConfig(
        hidden_size=width,
        num_attention_heads=HEADS,
        position_embeddings_type="relative_key",
        left_max_position_embeddings=distance,
        right_max_position_embeddings=2,
    )
    config._attn_implementation = "eager"
    module = theirs.Wav2Vec2BertSelfAttention(config).eval()
    weights = {name: x.detach().numpy() for name, x in module.named_parameters()}
    x = np.random.default_rng(0).normal(size=(ROWS, length, width)).astype(np.float32)
    mask = torch.full((length, length), -1e9).triu(1)[None, None]
    with torch.no_grad():
        expected = module(torch.tensor(x), mask)[0].numpy()
    params = {
        ours: {"kernel": weights[f"linear_{name}.weight"].T, "bias": weights[f"linear_{name}.bias"]}
        for ours, name in (("query", "q"), ("key", "k"), ("value", "v"), ("out", "out"))
    }
    # Theirs begin with the farthest key, and end with those behind the query.
    nearest_first = weights["distance_embedding.weight"][distance::-1]
    params["relative_keys"] = np.stack([nearest_first] * HEADS)
    for skewed in (False, True):
        spec = Spec("xla", SIZE, causal=True)
        layer = attention.Attention(HEADS, spec, OPTIONS, distance=distance, skewed=skewed)
        inputs = Inputs(Mask(jnp.ones((ROWS, length), jnp.int32)))
        computed, _ = layer.apply({"params": params}, x, inputs, None)
        np.testing.assert_allclose(computed, expected, atol=1e-6)


def make_batch(tokens, sizes) -> dict:
    """Returns rows of one text each, with padding at the end."""
    rows, length = tokens.shape
    positions = np.arange(length, dtype=np.int32)
    return {
        "tokens": tokens,
        "positions": np.broadcast_to(positions, tokens.shape),
        "segments": np.zeros_like(tokens),
        "sequence_ids": (positions < sizes[:, None]).astype(np.int32),
        "rows": np.arange(rows, dtype=np.int32),
    }


def make(*changes: str) -> tuple:
    """Returns an objective of two layers, its parameters, and random tokens int32[B, L]."""
    config = examples.load(NAME, "model.layers=2", "model.initializer=0.3", *changes)
    objective = base.make(config, VOCABULARY)
    draw = np.random.default_rng(0)
    tokens = draw.integers(5, VOCABULARY.size, (len(SIZES), 32)).astype(np.int32)
    params = jax.jit(objective.init)(jax.random.key(0), make_batch(tokens, SIZES))
    return objective, params, tokens


@pytest.mark.parametrize("kind", KINDS)
def test_prompts_are_continued_by_the_cache_as_without_it(kind):
    """Prompts of different lengths in one batch, compared with the whole text computed anew for each token."""
    objective, params, tokens = make(*KINDS[kind])
    call = partial(objective.module.apply, {"params": params})
    step = jax.jit(partial(call, method="step"))
    read = jax.jit(lambda batch: call(batch, None)["lm_logits"])
    cache = jax.jit(lambda batch: call(batch, 24 + NEW, method="start"))(
        make_batch(tokens[:, :24], SIZES)
    )
    rows = np.arange(len(SIZES))
    for sizes in SIZES + np.arange(NEW)[:, None]:
        logits, cache = step(tokens[rows, sizes - 1], cache)
        whole = read(make_batch(tokens, sizes))[rows, sizes - 1]
        np.testing.assert_allclose(logits, whole, atol=2e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_beams_have_the_distances_of_their_own_tokens(kind):
    """A hypothesis' tokens have those of others between them in the cache. Scores are those of the whole rows."""
    objective, params, tokens = make(*KINDS[kind])
    call = partial(objective.module.apply, {"params": params})
    batch = make_batch(tokens[:, :24], SIZES)
    first = tokens[np.arange(len(SIZES)), SIZES - 1]

    @jax.jit
    def search(batch):
        cache = call(batch, 24 + 3 * decoding.rooms(NEW)[0], method="start")
        step = partial(call, method="step")
        return decoding.beam(step, cache, first, decoding.Stop(-1, NEW), decoding.Search(3))

    found = jax.tree.map(np.asarray, search(batch))
    read = jax.jit(lambda batch: jax.nn.log_softmax(call(batch, None)["lm_logits"]))
    for beam in range(3):
        whole = tokens.copy()
        for row, size in enumerate(SIZES):
            whole[row, size : size + NEW] = found.tokens[row, beam]
        log_probs = np.asarray(read(make_batch(whole, SIZES + NEW)))
        for row, size in enumerate(SIZES):
            places = size + np.arange(NEW)
            total = log_probs[row, places - 1, whole[row, places]].sum()
            assert found.scores[row, beam] == pytest.approx(total, abs=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_no_state_depends_on_a_later_token(kind):
    """The gradients are exactly zero; of a token and those before it they are not."""
    objective, params, tokens = make(*KINDS[kind])
    network = objective.module.network
    batch = make_batch(tokens, np.full(len(SIZES), 32))
    variables = {"params": params["network"]}
    embeddings = network.apply(variables, batch, method="embed")

    @jax.jit
    @jax.grad
    def differentiate(embeddings):
        states = network.apply(variables, batch, None, embeddings, method="states")
        return (states[-1][:, 20] ** 3).sum()

    reached = np.abs(differentiate(embeddings)).max(axis=-1)
    assert (reached[:, 21:] == 0).all() and (reached[:, :21] > 1e-6).all()


def test_skewed_and_gathered_scores_make_the_same_network():
    """By two programs, in packed rows, and with their gradients."""
    objective, params, tokens = make(*KINDS["skew"])
    batch = make_batch(tokens, np.full(len(SIZES), 32))
    place = np.arange(32)
    batch["sequence_ids"] = np.where(place < SIZES[:, None], 1, 2).astype(np.int32)
    results = []
    programs = set()
    for relative in ("skew", "gather"):
        network = objective.module.network.clone(relative=relative)

        @jax.jit
        @jax.value_and_grad
        def differentiate(params):
            states = network.apply({"params": params}, batch)  # noqa: B023
            # The cube: the squares of what a layer norm gives have a constant sum.
            return (states**3 * place[:, None]).sum()

        results.append(differentiate(params["network"]))
        programs.add(differentiate.lower(params["network"]).as_text())
    assert len(programs) == 2
    (loss, skewed), (expected, gathered) = results
    assert float(loss) == pytest.approx(float(expected), rel=1e-5)
    largest = max(abs(gradient).max() for gradient in jax.tree.leaves(gathered))
    for ours, theirs in zip(*map(jax.tree.leaves, (skewed, gathered)), strict=True):
        assert abs(ours - theirs).max() < 1e-6 * largest
    assert abs(gathered["blocks_0"]["attention"]["relative_keys"]).max() > 1e-2 * largest


def temporaries(function, *shapes) -> int:
    """Returns the bytes of what a compiled function computes in between."""
    return jax.jit(function).lower(*shapes).compile().memory_analysis().temp_size_in_bytes


def test_a_skew_makes_no_vector_for_each_pair():
    """Bytes of the compiled relative scores with their gradients: for those that are gathered, L x L x D numbers; for
    those that are skewed, a few times the scores themselves, L x L x H."""
    length, heads, size = 256, 4, 32
    queries = jax.ShapeDtypeStruct((1, length, heads, size), np.float32)
    vectors = jax.ShapeDtypeStruct((heads, length, size), np.float32)
    distances = attention.distances_between((), length, length)

    def gradients_of(scores):
        return jax.grad(lambda *arrays: (scores(*arrays) ** 2).sum(), argnums=(0, 1))

    gathered = gradients_of(partial(attention.gathered_scores, distances=distances))
    skewed = gradients_of(attention.skewed_scores)
    scores = 4 * length**2 * heads
    assert temporaries(gathered, queries, vectors) >= size * scores
    assert temporaries(skewed, queries, vectors) <= 6 * scores


@needs_libtpu
@pytest.mark.full
def test_a_skew_is_planned_with_less_memory(capsys):
    """As README's table, with 256 tokens, whose vectors of pairs have 512 floats each."""
    keys = "model.max_length=256", "phases.main.length=256", "phases.main.batch=1"
    sizes = "model.layers=1", "model.width=512", "model.heads=8", "model.distance=256"
    options = [f"--config.{key}" for key in (*keys, *sizes)]
    path = examples.path_of("positions/config_chorales.py:relative")
    temporary = {}
    for relative in ("skew", "gather"):
        words = ["plan", "--config", path, "--topology", "v5e:1x1", "--json", "-", *options]
        assert main([*words, f"--config.model.relative={relative}"]) == 0
        planned = json.loads(capsys.readouterr().out)["phases"]["main"]
        temporary[relative] = planned["bytes_of_temporaries"]
    assert temporary["gather"] > 4 * 256**2 * 512 > 4 * temporary["skew"]


def shapes_of(name: str, *changes: str) -> dict:
    """Returns {path: shape} of the parameters of the small network."""
    network = models.make(examples.load(name, *changes), VOCABULARY.size)
    batch = make_batch(np.ones((len(SIZES), 8), np.int32), SIZES)
    shapes = jax.eval_shape(network.init, jax.random.key(0), batch)["params"]
    paths = jax.tree.leaves_with_path(shapes)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): x.shape for path, x in paths}


def test_vectors_of_distances_are_in_place_of_those_of_positions():
    absolute = shapes_of(f"{NAME}:absolute")
    relative = shapes_of(f"{NAME}:shaw")
    assert absolute.keys() - relative.keys() == {"embedder/positions"}
    gained = {path: shape for path, shape in relative.items() if path not in absolute}
    names = ("blocks_0/attention/relative_keys", "blocks_0/attention/relative_values")
    assert gained == dict.fromkeys(names, (4, 9, 8))
    assert shapes_of(f"{NAME}:both").keys() == absolute.keys() | {names[0]}


def test_keys_of_the_model():
    for change in ("model.relative=rotary", "model.distance=0", "model.relative_values=True"):
        key = change.partition("=")[0]
        with pytest.raises(BadInput, match=key):
            examples.load(NAME, "model.relative=skew", change)


def test_a_melody_repeats_its_motif():
    texts = [melodies.melody(str(number)) for number in range(300)]
    assert texts == [melodies.melody(str(number)) for number in range(300)]
    assert len(set(texts)) == 300
    octaves = set()
    sizes = set()
    for text in texts:
        motif, *repetitions = [np.array(line.split(), int) for line in text.split("\n")]
        assert len(repetitions) == 4 and set(motif) <= {*range(60, 72)}
        sizes.add(len(motif))
        for line in repetitions:
            (octave,) = {*(line - motif)}
            octaves.add(octave)
    assert octaves == {-12, 0, 12} and sizes == {5, 6, 7, 8, 9}


def test_what_is_random_in_a_melody():
    """README's nats a token: of the size, the notes, and the octaves. A [SEP] is a token, too."""
    size = np.mean(melodies.SIZES)
    nats = np.log(len(melodies.SIZES)) + size * np.log(12) + 4 * np.log(3)
    assert nats / (5 * size + 1) == pytest.approx(0.65, abs=0.005)


def test_each_note_of_a_melody_is_a_piece(tmp_path):
    examples.prepare(NAME, tmp_path)
    pieces = {*(tmp_path / "store/tokenizer/vocab.txt").read_text().split()}
    lowest, highest = 60 + min(melodies.OCTAVES), 71 + max(melodies.OCTAVES)
    assert pieces >= {*map(str, range(lowest, highest + 1))}


CHORALES = {
    "train": [[[74, 70, 65, 58]] * 12, [[69, 65, 60, 53], [81, 65, 60], []] * 5],
    "valid": [[[74, 70, 60, 53]] * 11, [[81, 70, 60, 58]] * 3],
    "test": [[[74, 65, 60, 58]] * 9],
}


def test_chorales_are_rows_of_whole_sixteenths(tmp_path):
    """Each note is a piece, each row has notes of one chorale, and a position tells the voice."""
    (tmp_path / "chorales.json.xz").write_bytes(lzma.compress(json.dumps(CHORALES).encode()))
    chorales.main(tmp_path / "chorales.json.xz", tmp_path / "text")
    lines = (tmp_path / "text/train.txt").read_text().split("\n")
    assert lines[11:16] == ["74 70 65 58", "", "69 65 60 53", "81 65 60 r", "r r r r"]
    path = examples.path_of("positions/config_chorales.py")
    (phase,) = configs.phases(configs.load(path, []))
    assert (phase.length - 1) % chorales.VOICES == 0
    config = configs.load(
        path,
        [
            f"corpus.source={tmp_path}/text/train.txt",
            f"corpus.heldout_source={tmp_path}/text/valid.txt",
            f"store={tmp_path}/store",
            "corpus.workers=1",
            "phases.main.length=17",
        ],
    )
    prepare(config)
    store = open_store(tmp_path / "store")
    tokens = {name: split["tokens"] for name, split in store.manifest["splits"].items()}
    assert tokens == {"train": 27 * 4, "heldout": 14 * 4}
    pieces = (tmp_path / "store/tokenizer/vocab.txt").read_text().split()
    texts = [chorales.text_of(chorale).split() for chorale in CHORALES["train"]]
    sixteenths = [(text, first) for text in texts for first in range(0, len(text), 4)]
    (phase,) = configs.phases(config)
    batch = next(open_feed(config).train(phase, 0, 1))
    for tokens, ids in zip(batch["tokens"], batch["sequence_ids"], strict=True):
        _, *notes = [pieces[token] for token in tokens[ids > 0]]
        if notes[-1] == "[SEP]":
            notes.pop()
        assert any(notes == text[first : first + len(notes)] for text, first in sixteenths)

"""The tagger of ELMo and TagLM: paths of labels, characters of words, and a language model as features."""

import itertools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kits import examples  # which makes the modules of examples known
from kits.objectives import assert_halves_add_up
from kits.runs import lines, params
from kits.small import overrides

# isort: split
from elmo import characters, crf, sentences

from bert_jax import config as configs
from bert_jax.cli import main
from bert_jax.convert import open_model
from bert_jax.objectives import base
from bert_jax.tasks.feed import open_feed
from bert_jax.train import pretrain

NAME = "elmo/config_tagger.py"
LABELS = 4


def random_scores(rows: int, length: int):
    """Returns logits, whether places have a label, and the scores of transitions, all at random."""
    draw = np.random.default_rng(0)
    logits = draw.normal(size=(rows, length, LABELS)).astype(np.float32)
    is_labelled = draw.random((rows, length)) < 0.7
    sizes = (LABELS,), (LABELS, LABELS), (LABELS,)
    scores = crf.Scores(*(draw.normal(size=size).astype(np.float32) for size in sizes))
    return logits, is_labelled, scores


def score_all(logits, scores) -> dict[tuple, float]:
    """Returns the score of each path through places that all have a label. logits: float32[L, C]."""
    logits = logits.astype(np.float64)
    result = {}
    for path in itertools.product(range(LABELS), repeat=len(logits)):
        total = scores.begin[path[0]] + np.float64(scores.end[path[-1]])
        total += sum(logits[place, label] for place, label in enumerate(path))
        total += sum(scores.transitions[pair] for pair in itertools.pairwise(path))
        result[path] = total
    return result


def test_paths_are_those_of_brute_force():
    """Also over places without a label."""
    rows, length = 12, 6
    logits, is_labelled, scores = random_scores(rows, length)
    is_labelled[0] = False
    is_labelled[1] = True
    labels = np.random.default_rng(1).integers(0, LABELS, (rows, length))
    nats = crf.losses(logits, labels, is_labelled, scores)
    best = np.asarray(crf.best_path(logits, is_labelled, scores))
    assert nats[0] == 0
    for row in range(1, rows):
        used = is_labelled[row]
        totals = score_all(logits[row, used], scores)
        partition = np.logaddexp.reduce([*totals.values()])
        expected = partition - totals[tuple(labels[row, used].tolist())]
        assert nats[row] == pytest.approx(expected, abs=1e-5)
        assert tuple(best[row, used].tolist()) == max(totals, key=totals.get)


def test_gradients_are_finite_and_of_labelled_places():
    logits, is_labelled, scores = random_scores(5, 7)
    labels = np.zeros((5, 7), np.int32)

    def loss(logits, scores):
        return crf.losses(logits, labels, is_labelled, scores).sum()

    of_logits, of_scores = jax.grad(loss, (0, 1))(jnp.asarray(logits), scores)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((of_logits, of_scores)))
    np.testing.assert_array_equal(abs(of_logits).max(-1) > 0, is_labelled)
    # Each place gives as much to its label as it takes from the others.
    np.testing.assert_allclose(of_logits.sum(-1), 0, atol=1e-6)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """(directory, objective, parameters, a batch) of the small config."""
    directory = tmp_path_factory.mktemp("tagger")
    made, batch = examples.prepare(NAME, directory)
    return directory, made, jax.jit(made.init)(jax.random.key(0), batch), batch


def test_words_have_their_characters_between_marks(world):
    directory, _, _, batch = world
    config = examples.load(NAME, f"store={directory}/store")
    feed = open_feed(config)
    split = feed.store.splits["train"]
    special = feed.store.manifest["special"]
    size = config.task.characters
    texts = sentences.load(config, Path(config.task.data, config.task.train))
    whole = [[characters.encode(word, size) for word in text.texts] for text in texts]
    for row in range(4):
        codes = batch["characters"][row]
        count = int((batch["sequence_ids"][row] > 0).sum())
        assert codes[0].tolist() == characters.mark(characters.BEGIN, size)
        assert codes[count - 1].tolist() == characters.mark(characters.END, size)
        assert not codes[count:].any() and (batch["label_weights"][row, 1 : count - 1] == 1).all()
        assert codes[1 : count - 1].tolist() in whole
    assert (split.tokens == special["unk"]).mean() > 0.2  # names, which have several pieces


def test_halves_of_a_batch_add_up(world):
    _, made, params, batch = world
    assert_halves_add_up(made, params, batch)


def test_predictions_are_labels_of_the_best_paths(world):
    _, made, params, batch = world
    outputs = jax.jit(made.outputs)(params, batch)["label_logits"]
    module = made.module
    logits = module.apply({"params": params}, batch, None, method="logits")
    scores = crf.Scores(**params["crf"])
    expected = crf.best_path(logits, batch["label_weights"] > 0, scores)
    np.testing.assert_array_equal(outputs.argmax(-1), expected)
    np.testing.assert_array_equal(outputs.sum(-1), 1)


@pytest.mark.full
@pytest.mark.slow
def test_a_language_model_gives_features_and_stays_as_it_is(tmp_path):
    shared = ["model.filters=4,8,8", "model.cell=24", "model.width=16", "model.unroll=6"]
    shared += ["task.characters=12", "phases.main.steps=10"]
    changes = [f"store={tmp_path}/words", *shared]
    assert pretrain(examples.load("elmo/config.py", *changes), tmp_path / "lm") == 0
    trained = params(tmp_path / "lm")["network"]
    changes = [f"store={tmp_path}/names", *shared]
    config = examples.load(NAME, *changes, f"tokenizer.path={tmp_path / 'lm'}")
    assert open_feed(config, 0)
    for lm, width in ("input", 8 + 8 + 2 * 16), ("between", 8 + 8):
        keys = [f"model.lm={lm}", "optimizer.frozen=True", f"init_from={tmp_path / 'lm'}"]
        assert pretrain(examples.load(NAME, *changes, *keys), tmp_path / lm) == 0
        network = params(tmp_path / lm)["network"]
        jax.tree.map(np.testing.assert_array_equal, network["bilm"], trained)
        assert network["layer_0"]["forward"]["kernel"].shape[0] == width + 16
        assert ("mix" in network) == (lm == "input")
        losses = [line["loss"] for line in lines(tmp_path / lm) if line["split"] == "train"]
        assert losses[-1] < losses[0]


@pytest.mark.full
@pytest.mark.slow
def test_cove_has_the_encoder_of_a_translator(tmp_path):
    """Unchanged by the training of the classifier, which reads its embeddings and its last states."""
    sizes = ["model.layers=1", "model.width=32", "model.feed_forward=32", "phases.main.length=48"]
    keys = [*sizes, *overrides(examples.STEPS)]
    translator = configs.load("translate_demo", [*keys, f"store={tmp_path}/pairs"])
    assert pretrain(translator, tmp_path / "translator") == 0
    keys += [f"store={tmp_path}/texts", f"tokenizer.path={tmp_path}/translator"]
    path = examples.path_of("elmo/config_cove.py")
    assert main(["prepare", "--config", path, *(f"--config.{key}" for key in keys)]) == 0
    config = configs.load(path, [*keys, f"init_from={tmp_path}/translator"])
    assert pretrain(config, tmp_path / "cove") == 0
    trained = params(tmp_path / "translator")["network"]["encoder"]
    after = params(tmp_path / "cove")
    jax.tree.map(np.testing.assert_array_equal, after["network"]["encoder"], trained)
    run = open_model.open_model(tmp_path / "cove")
    (phase,) = configs.phases(run.config)
    batch = next(open_feed(run.config).train(phase, 0, 1))
    network = run.objective.module.network
    batch, variables = jax.tree.map(jnp.asarray, (batch, {"params": after["network"]}))
    (states,) = network.apply(variables, batch, method="states")
    variables = {"params": variables["params"]["encoder"]}
    layers = network.encoder.apply(variables, batch, method="states")
    np.testing.assert_allclose(states, np.concatenate([layers[0], layers[-1]], -1), atol=1e-6)
    losses = [line["loss"] for line in lines(tmp_path / "cove") if line["split"] == "train"]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("lm", ["input", "between"])
def test_labels_depend_on_the_language_model(world, lm):
    directory, _, _, batch = world
    config = examples.load(NAME, f"store={directory}/store", f"model.lm={lm}", "model.cell=8")
    made = base.make(config, open_feed(config).vocabulary)
    params = jax.jit(made.init)(jax.random.key(0), batch)

    @jax.jit
    def loss(params):
        return made.loss(params, batch, made.weights(batch), jnp.uint32(0), train=False)[0]

    gradients = jax.grad(loss)(params)["network"]["bilm"]
    top = gradients["forward_1"]["projection"]
    words = gradients["words"]["out"]["kernel"]
    assert abs(top).max() > 0 and abs(words).max() > 0
    # A layer reads 8 + 8 numbers of a word, or 2 x 16 of the layer below, and what it wrote, 16.
    network = params["network"]
    sizes = [network[f"layer_{number}"]["forward"]["kernel"].shape[0] for number in (0, 1)]
    width = 2 * config.model.width
    added = {"input": (width, 0), "between": (0, width)}[lm]
    assert sizes == [16 + 16 + added[0], 32 + 16 + added[1]]

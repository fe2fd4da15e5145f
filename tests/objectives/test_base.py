"""The fields of an objective, and the keys of what it samples; what `capture` refuses."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn
from kits.objectives import assert_halves_add_up
from kits.small import (
    VOCABULARY,
    mesh_of,
    small_batch,
    small_config,
    small_objective,
    small_params,
)

from bert_jax import config as configs
from bert_jax import evaluate, prng, step
from bert_jax.errors import BadInput
from bert_jax.layers.dense import MASKED
from bert_jax.objectives import base
from bert_jax.parallel import mesh as meshes
from bert_jax.planning import plan


def test_the_rows_of_a_task_decide_whether_there_are_pairs():
    """A change of the task needs no key of the objective."""
    for name, terms in (("sentence_pairs", {"mlm", "nsp"}), ("full_sentences", {"mlm"})):
        objective = small_objective(f"task.name={name}")
        assert set(objective.weights(small_batch())) == terms


def test_arrays_that_the_task_does_not_make_are_named():
    with pytest.raises(BadInput, match="next_weights"):
        plan.expected_counts(small_config("objective.name=causal_lm"), print)


class Sampler(nn.Module):
    """Outputs what an objective draws for each row, and the keys of its dropout."""

    def __call__(self, batch, keys):
        return {"draws": batch["draw_keys"], "dropout": keys}


def sampler() -> base.Objective:
    def terms(outputs, batch):
        return {"draw_loss": (outputs["draws"], batch["draw_keys"]), "dropout": outputs["dropout"]}

    return base.from_module(Sampler(), lambda batch: {"draw": 1.0}, terms)


def draws_of(rows, key: int, train: bool):
    _, metrics = sampler().loss({}, {"rows": np.array(rows)}, {"draw": 1.0}, key, train=train)
    return metrics


def test_draws_follow_key_and_row_alone():
    """In training and in evaluations; keys of dropout are others, and exist in training alone."""
    draws, of_terms = draws_of([0, 1, 2], 3, True)["draw_loss"]
    np.testing.assert_array_equal(draws, of_terms)
    np.testing.assert_array_equal(draws[2::-2], draws_of([2, 0], 3, False)["draw_loss"][0])
    others = [draws_of([0, 1, 2], 4, True)["draw_loss"][0], draws_of([0, 1, 2], 3, True)["dropout"]]
    assert len(set(np.concatenate([draws, *others]).tolist())) == 9
    assert draws_of([0], 3, False)["dropout"] is None


def test_draws_of_capture_and_of_what_is_decoded_are_those_of_outputs():
    batch = {"rows": np.arange(3)}
    expected = sampler().outputs({}, batch)["draws"]
    captured, kept = sampler().capture({}, batch, lambda module, name: name == "__call__")
    decoder = base.from_module(
        Sampler(), None, None, lambda call, batch: call("__call__")(batch, None)
    )
    for outputs in (captured, decoder.outputs({}, batch)):
        np.testing.assert_array_equal(outputs["draws"], expected)
    np.testing.assert_array_equal(*[*kept.values(), expected])


def test_draws_of_an_evaluation_do_not_depend_on_the_size_of_its_batches():
    """Losses and outputs have the same."""

    class Feed:
        vocabulary = VOCABULARY
        score = None
        review = None

        def evaluation(self, phase, split, batch, positions):
            rows = np.array(positions, np.int32)
            return [{"tokens": np.zeros((batch, 1), np.int32), "rows": rows}] * (32 // batch)

    draws = []
    for size in (8, 16):
        config = small_config(f"evaluate.batch={size}")
        mesh = meshes.make_mesh(config)
        batches = evaluate.Batches(Feed(), config, configs.phases(config)[0], "heldout", mesh)
        for batch in batches:
            _, terms, outputs, _ = step.evaluate({}, batch, objective=sampler(), with_outputs=True)
            np.testing.assert_array_equal(np.float32(outputs["draws"]), terms["draw"][0])
            draws += outputs["draws"].tolist()
    assert draws[:32] == draws[32:] and len(set(draws)) == 32


WORDS, SAMPLE = 50, 8


class SampledSoftmax(nn.Module):
    """Predicts the first token of a row among it and a sample of the vocabulary, the same for all rows."""

    @nn.compact
    def __call__(self, batch, keys):
        words = self.param("words", nn.initializers.normal(), (WORDS, 4))
        counters = jnp.arange(SAMPLE, dtype=jnp.uint32)
        sample = prng.fold(batch["step_key"], counters) % jnp.uint32(WORDS)
        targets = batch["tokens"][:, 0] % WORDS
        x = words[batch["tokens"][:, 1] % WORDS]
        positive = (x * words[targets]).sum(axis=-1, keepdims=True)
        logits = jnp.concatenate([positive, x @ words[sample].T], axis=1)
        samples = jnp.broadcast_to(sample, (len(x), SAMPLE))
        return {"logits": logits, "samples": samples.astype(jnp.float32)}


def sampled_softmax() -> base.Objective:
    def weights(batch):
        return {"softmax": batch["row_weights"].sum()}

    def terms(outputs, batch):
        weight = batch["row_weights"]
        loss = base.cross_entropy(outputs["logits"], jnp.zeros(len(weight), jnp.int32))
        samples = (outputs["samples"] * weight[:, None]).sum(axis=0)
        return {
            "softmax_loss": base.weighted_mean(loss, weight),
            "samples": (samples, weight.sum()),
        }

    return base.from_module(SampledSoftmax(), weights, terms)


@cache
def sampled_step(shape, count: int, seed: int = 3, number: int = 5) -> tuple:
    """Returns (float[SAMPLE], the mean over the rows of the samples of a step; gradients)."""
    objective = sampled_softmax()
    optimizer = optax.with_extra_args_support(optax.sgd(1.0))
    mesh = mesh_of(shape)
    options = step.StepOptions(count, meshes.summed(mesh, jnp.float32))
    train = partial(step.train, objective=objective, optimizer=optimizer, seed=seed)
    batch = small_batch(32)
    state = step.init(objective, optimizer, 0, batch)._replace(step=jnp.int32(number))
    rows = meshes.to_devices(mesh, batch, np.arange(32), 32)
    with jax.set_mesh(mesh):
        state = jax.device_put(state, meshes.replicated(mesh))
        after, metrics, _ = jax.jit(partial(train, options=options))(state, rows)
    total, weight = metrics["samples"]
    gradient = state.params["words"] - after.params["words"]
    return np.asarray(total / weight), np.asarray(gradient)


@pytest.mark.parametrize(
    ("shape", "count"), [((1, 1, 1), 1), ((8, 1, 1), 1), ((8, 1, 1), 4), ((2, 2, 2), 4)]
)
def test_a_batch_has_one_sample_on_all_devices_and_in_all_micro_batches(shape, count):
    sample, gradient = sampled_step(shape, count)
    key = prng.fold(np.full(1, prng.key(3)), np.uint32(5))
    step_key = prng.fold(key, np.uint32(prng.PURPOSE["step_draws"]))
    expected = prng.fold(step_key, np.arange(SAMPLE, dtype=np.uint32)) % WORDS
    np.testing.assert_array_equal(sample, expected)
    np.testing.assert_allclose(gradient, sampled_step((1, 1, 1), 1)[1], atol=1e-7)
    assert np.abs(gradient).max() > 1e-3


def test_the_sample_of_a_batch_follows_from_seed_and_step():
    samples = [sampled_step((1, 1, 1), 1, seed, number)[0] for seed in (3, 4) for number in (5, 6)]
    assert len(set(map(tuple, samples))) == 4
    objective = sampled_softmax()
    params = {"words": jnp.ones((WORDS, 4))}
    parts = [objective.outputs(params, small_batch(4, seed=seed))["samples"] for seed in (0, 1)]
    np.testing.assert_array_equal(*parts)  # that of all evaluations


def contrastive() -> base.Objective:
    """Returns a loss that compares each row with all others, the mean of which is no sum over rows."""

    def terms(outputs, batch):
        vectors = outputs["logits"]
        nats = base.cross_entropy(vectors @ vectors.T, jnp.arange(len(vectors)))
        return {"softmax_loss": base.weighted_mean(nats, batch["row_weights"])}

    weights = sampled_softmax().weights
    return base.from_module(SampledSoftmax(), weights, terms)


@pytest.mark.parametrize("make", [partial(small_objective, "model.layers=1"), sampled_softmax])
def test_halves_of_a_batch_add_up(make):
    """With dropout, and with one sample for the batch."""
    objective = make()
    assert_halves_add_up(objective, small_params(objective), small_batch(16))


def test_a_loss_that_compares_rows_does_not_add_up():
    objective = contrastive()
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        assert_halves_add_up(objective, small_params(objective), small_batch(16))


def test_smoothing_leaves_out_the_padding_of_the_vocabulary():
    logits = np.random.default_rng(0).normal(size=(4, 10)).astype(np.float32)
    padded = np.pad(logits, [(0, 0), (0, 6)], constant_values=MASKED)
    targets = np.arange(4)
    expected = base.cross_entropy(logits, targets, 0.1)
    np.testing.assert_allclose(base.cross_entropy(padded, targets, 0.1, 10), expected, rtol=1e-6)


# --- What `capture` sees --------------------------------------------------------------------------


DEPTH = 3


class Doubled(nn.Module):
    """A layer with a method to capture."""

    def setup(self):
        self.dense = nn.Dense(4)

    def double(self, x):
        return 2 * x

    def __call__(self, x, _):
        return self.double(self.dense(x)), None


class InLinenScan(nn.Module):
    """DEPTH layers by Linen's scan."""

    axes: tuple[str, ...]  # the collections of which each layer has its own

    @nn.compact
    def __call__(self, batch, keys):
        axes = dict.fromkeys(self.axes, 0)
        scan = nn.scan(Doubled, variable_axes=axes, split_rngs={"params": True}, length=DEPTH)
        return scan(name="layers")(batch["x"], None)[0]


STATES = {"x": np.eye(2, 4, dtype=np.float32), "rows": np.arange(2)}


def capture_doubles(module, transform=lambda run: run):
    """Returns the outputs of a module with random parameters, and what `double` of its layers returned.

    transform: applied to the function params -> both.
    """
    objective = base.from_module(module)
    params = objective.init(jax.random.key(0), STATES)
    assert objective.outputs(params, STATES).shape == (2, 4)  # nothing else is refused

    def run(params):
        return objective.capture(params, STATES, lambda module, name: name == "double")

    return transform(run)(params)


def test_a_scan_of_linen_without_an_axis_for_what_is_captured_is_refused():
    with pytest.raises(BadInput, match="variable_axes={'intermediates': 0}"):
        capture_doubles(InLinenScan(("params",)))


@pytest.mark.parametrize("transform", [lambda run: run, jax.jit])
def test_a_scan_of_linen_with_this_axis_is_captured(transform):
    outputs, kept = capture_doubles(InLinenScan(("params", "intermediates")), transform)
    (states,) = kept.values()
    assert states.shape == (DEPTH, 2, 4) and abs(states[0] - states[1]).max() > 0.1
    np.testing.assert_array_equal(states[-1], outputs)

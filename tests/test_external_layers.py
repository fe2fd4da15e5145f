"""Networks from outside of the package (tests/external) whose blocks have an attention of their own: a memory in front
of segments, passes through one block that are charged for, and attention to content and positions apart."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kits.objectives import assert_halves_add_up
from kits.small import VOCABULARY, small_batch, small_config, small_objective, small_params, synthetic

from bert_jax.layers.encoder import Encoder
from bert_jax.models import base as models

SEGMENTS = "model.name=external.segments", "objective.name=causal_lm", "task.name=token_blocks"
PONDER = "model.name=external.universal", "model.layers=3", "objective.name=external.ponder"
DISENTANGLED = "model.name=external.disentangled", "task.pair_task=none", "model.max_length=40"


def make_network(*keys, **fields):
    """Returns a network, a batch of rows that hold two sequences each, and random parameters."""
    batch = synthetic(batch=4, length=20, predictions=5, vocabulary=VOCABULARY.size, sequences=2)
    network = models.make(small_config(*keys), VOCABULARY.size, **fields)
    return network, batch, jax.jit(network.init)(jax.random.key(0), batch)


def test_segments_with_a_memory_are_one_long_causal_row():
    """With a shorter memory they are not."""
    network, batch, params = make_network(*SEGMENTS, "model.memory=20", causal=True)
    short = network.clone(memory=2)

    @jax.jit
    def compute(params):
        whole = network.apply(params, batch, method=Encoder.states)
        return whole, network.apply(params, batch, method="states"), short.apply(params, batch)

    whole, states, of_short = compute(params)
    np.testing.assert_allclose(np.stack(states), np.stack(whole), atol=2e-6)
    assert abs(of_short - whole[-1]).max() > 1e-3


@pytest.fixture(scope="module")
def ponder():
    """(objective, parameters, batch) of three passes through one block."""
    objective = small_objective(*PONDER)
    return objective, small_params(objective), small_batch(rows=2)


def test_a_loss_captures_the_halting_of_each_pass(ponder):
    objective, params, batch = ponder
    _, kept = objective.capture(params, batch, lambda module, name: name == "halt")
    assert len(kept) == 3 and all("encoder/halt/" in path for path in kept)
    assert all(halt.shape == batch["tokens"].shape for halt in kept.values())
    totals = {"ponder": objective.weights(batch)["ponder"]}

    @jax.jit
    @jax.grad
    def differentiate(params):
        return objective.loss(params, batch, totals, 0, train=False)[0]

    gradients = differentiate(params)["encoder"]
    assert abs(gradients["halting"]["kernel"]).max() > 1e-3
    assert abs(gradients["blocks_0"]["attention"]["value"]["kernel"]).max() > 1e-4


def test_halves_of_a_batch_add_up_with_captured_values(ponder):
    assert_halves_add_up(*ponder)

"""Transformer-XL: segments of a row with a memory between them."""

import numpy as np
import pytest
from kits import examples
from kits.permuted import LENGTH, ROWS, TRANSFORMER_XL, input_gradients, make_network
from kits.runs import lines
from xlnet import relative

from bert_jax import evaluate
from bert_jax.layers.attention_spec import Mask
from bert_jax.layers.blocks import Inputs
from bert_jax.train import pretrain

SEGMENT = "model.layers=2", "model.segment=5"


def run_layers(network, params, batch, mask):
    """Returns the last states of rows that are read at once, with this mask."""

    def compute(network):
        inputs = Inputs(mask, extra=relative.Distances(network.waves(LENGTH)))
        x = network.embed(batch)
        for block in network.blocks:
            x, _ = block(x, inputs, None)
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


def test_no_gradient_flows_into_the_memory():
    """But it is read. Later tokens are not."""
    network, batch, params = make_network(TRANSFORMER_XL, *SEGMENT, "model.memory=10")
    gradients = input_gradients(network, params, batch, "__call__")(7)
    assert (gradients[:5] == 0).all() and (gradients[8:] == 0).all()
    assert (gradients[5:8] > 1e-5).all()
    other = batch | {"tokens": batch["tokens"].copy()}
    other["tokens"][0, 1] += 1
    states = [network.apply(params, rows)[0, 7] for rows in (batch, other)]
    assert abs(states[1] - states[0]).max() > 1e-3


@pytest.mark.full
@pytest.mark.slow
def test_a_run_is_evaluated_with_another_memory(tmp_path):
    config = examples.load(TRANSFORMER_XL, f"store={tmp_path}/store", "model.segment=8")
    assert pretrain(config, tmp_path / "run") == 0
    losses = []
    for size in (0, 16, 40):
        keys = [f"model.evaluation_memory={size}"]
        losses.append(evaluate.evaluate_run(tmp_path / "run", keys)["loss"])
    assert len(set(losses)) == 3
    assert losses[1] == pytest.approx(lines(tmp_path / "run")[-1]["loss"], rel=1e-5)


@pytest.mark.parametrize("memory", [0, 3, 20])
def test_texts_are_continued_by_the_tokens_of_a_segment_and_its_memory(memory):
    """Token by token, from a cache, like one layer with such a window; with all tokens, like the whole row."""
    changes = "model.layers=1", "model.segment=5", f"model.evaluation_memory={memory}"
    network, batch, params = make_network(TRANSFORMER_XL, *changes)
    prompt = {name: array[:, :6] for name, array in batch.items() if array.ndim > 1}
    distances = np.arange(LENGTH)[:, None] - np.arange(LENGTH)
    is_near = np.broadcast_to(distances < 5 + memory, (ROWS, LENGTH, LENGTH))
    whole = run_layers(network, params, batch, Mask(batch["sequence_ids"], pairs=is_near))
    cache = network.apply(params, prompt, LENGTH, method="start")
    for place in range(5, 9):
        tokens = batch["tokens"][:, place]
        x, cache = network.apply(params, tokens, cache, method="read_next")
        np.testing.assert_allclose(x, whole[:, place], atol=2e-5)

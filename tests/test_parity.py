"""Ours beside PyTorch at run time: golden numbers, a wider model, a real one, and a training run."""

import importlib.util
from pathlib import Path

import numpy as np
import outside
import pytest

pytestmark = pytest.mark.parity


@pytest.fixture(scope="module")
def theirs():
    """golden/make_bert.py, which imports PyTorch."""
    from golden import make_bert

    return make_bert


def test_golden_numbers_are_made_again(theirs):
    made = theirs.make()
    with np.load(theirs.FILE) as file:
        assert file.keys() == made.keys()
        for name in made.keys() - {"versions"}:
            if made[name].dtype == np.float32:
                # Both were computed in float64.
                np.testing.assert_allclose(made[name], file[name], rtol=1e-5, atol=1e-7, err_msg=name)
            else:
                np.testing.assert_array_equal(made[name], file[name], err_msg=name)


@pytest.mark.parametrize("activation", ["gelu_new", "gelu"])
def test_every_number_at_width_128(theirs, activation):
    sizes = dict(hidden_size=128, num_hidden_layers=2, num_attention_heads=2)
    sizes |= dict(vocab_size=1000, intermediate_size=512, max_position_embeddings=128)
    config = dict(sizes, type_vocab_size=2, layer_norm_eps=1e-12, hidden_act=activation)
    draw = np.random.default_rng(0)
    for dev in (0.05, 0.1, 0.2):
        model = theirs.make_model(config, draw, deviation=dev)
        batch = theirs.make_batch(config, draw, [128, 97, 1, 40], 128)
        expected = theirs.evaluate(model, batch)
        tensors = {name: value.detach().numpy() for name, value in model.named_parameters()}
        ours = outside.evaluate(
            outside.config_of(config),
            outside.vocabulary_of(config),
            outside.params_of(tensors),
            outside.batch_of(batch),
        )
        found = outside.differences(ours, expected, batch["attention_mask"] > 0)
        print(dev, {k: float(v) for k,v in found.items() if 'grad' not in k}, max(v for k,v in found.items() if 'grad' in k))
        exact = theirs.evaluate(model.double(), batch)
        found = outside.differences(ours, exact, batch["attention_mask"] > 0)
        print('  ours-exact', dev, {k: float(v) for k,v in found.items() if 'grad' not in k}, max(v for k,v in found.items() if 'grad' in k))

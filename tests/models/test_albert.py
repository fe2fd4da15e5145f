"""ALBERT: one block for all layers, and narrow embeddings (its values: test_golden.py)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kits.small import ALBERT, loss_of, small_batch, small_config, small_objective, small_params

from bert_jax import config as configs
from bert_jax.convert.names import by_path
from bert_jax.errors import BadInput
from bert_jax.layers import counts, network
from bert_jax.models import albert
from bert_jax.parallel import mesh as meshes

KEYS = (*ALBERT, "task.pair_task=sop", "model.dropout=0.2")


def evaluate(objective, params, batch):
    loss, gradient = jax.jit(jax.value_and_grad(loss_of(objective)))(params, batch)
    return float(loss), by_path(jax.device_get(gradient))


@pytest.fixture(scope="module")
def shared():
    """(parameters, a batch, loss and gradient in training)."""
    objective = small_objective(*KEYS)
    params, batch = small_params(objective), small_batch()
    return params, batch, evaluate(objective, params, batch)


def test_layers_are_those_of_separate_blocks_of_the_same_weights(shared, monkeypatch):
    """With their dropout; the gradient is the sum of theirs."""
    params, batch, (loss, gradient) = shared
    monkeypatch.setattr(albert.Albert, "make_blocks", network.Network.make_blocks)
    block = params["network"]["blocks_0"]
    copies = params["network"] | {f"blocks_{number}": block for number in range(3)}
    expected, separate = evaluate(small_objective(*KEYS), params | {"network": copies}, batch)
    assert loss == pytest.approx(expected, rel=1e-6)
    for path, array in gradient.items():
        names = {path.replace("blocks_0", f"blocks_{number}") for number in range(3)}
        sums = sum(separate[name] for name in names)
        np.testing.assert_allclose(array, sums, rtol=1e-4, atol=1e-6, err_msg=path)
    layers = [separate[f"network/blocks_{number}/attention/out/kernel"] for number in range(3)]
    assert min(abs(layer).max() for layer in layers) > 1e-4
    assert abs(layers[0] - layers[1]).max() > 1e-4


@pytest.mark.parametrize("remat", ["attention", "full"])
def test_what_the_backward_pass_recomputes_does_not_matter(shared, remat):
    params, batch, (loss, gradient) = shared
    found, recomputed = evaluate(small_objective(*KEYS, f"train.remat={remat}"), params, batch)
    assert found == pytest.approx(loss, rel=1e-6)
    for path, array in gradient.items():
        np.testing.assert_allclose(recomputed[path], array, rtol=1e-4, atol=1e-6, err_msg=path)


def test_parameters_do_not_grow_with_depth_but_the_work_does():
    sizes, flops = [], []
    for layers in (2, 5):
        objective = small_objective(*KEYS, f"model.layers={layers}")
        params = jax.eval_shape(objective.init, jax.random.key(0), small_batch())
        sizes.append(counts.count(params, 200))
        program = jax.make_jaxpr(loss_of(objective))(params, small_batch())
        flops.append(counts.products(program.jaxpr, [True] * len(jax.tree.leaves(params))))
    assert sizes[0] == sizes[1] and flops[1] > 1.5 * flops[0]


def test_shapes_of_embeddings_and_head_and_their_shards(shared):
    params = shared[0]
    network = params["network"]
    assert network["embedder"]["words"].shape == (256, 16)
    assert network["embedder_norm"]["scale"].shape == (16,)
    assert network["embedder_dense"]["kernel"].shape == (16, 32)
    assert params["mlm"]["dense"]["kernel"].shape == (32, 16)
    assert params["mlm"]["norm"]["scale"].shape == (16,)
    keys = "mesh.data=1", "mesh.fsdp=4", "mesh.tensor=2"
    mesh = meshes.make_mesh(small_config(*keys), jax.devices())
    with jax.set_mesh(mesh):
        shardings = meshes.parameters(jax.eval_shape(lambda: params), mesh)
    kernel = shardings["network"]["embedder_dense"]["kernel"]
    assert kernel.shard_shape((16, 32)) == (4, 32)


def test_logits_are_the_products_with_the_word_embeddings(shared):
    params, batch, _ = shared
    objective = small_objective(*KEYS)
    logits = jax.jit(objective.outputs)(params, batch)["mlm_logits"]
    other = jax.tree.map(jnp.copy, params)
    other["network"]["embedder"]["words"] = params["network"]["embedder"]["words"].at[199].add(1.0)
    unseen = np.where(batch["tokens"] == 199, 198, batch["tokens"]).astype(np.int32)
    changed = jax.jit(objective.outputs)(other, batch | {"tokens": unseen})["mlm_logits"]
    same = jax.jit(objective.outputs)(params, batch | {"tokens": unseen})["mlm_logits"]
    assert logits.shape == changed.shape
    differs = (abs(changed - same) > 1e-6).any(axis=(0, 1))
    assert differs[199] and differs.sum() == 1


@pytest.mark.parametrize("key", ["embedding_width", "type_vocabulary", "layers"])
def test_a_size_of_zero_is_refused(key):
    with pytest.raises(BadInput, match=f"model.{key}=0"):
        configs.check(small_config(*KEYS, f"model.{key}=0"))

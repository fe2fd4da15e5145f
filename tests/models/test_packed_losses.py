"""Packed pairs have the same losses and gradients as in rows of their own, packed documents the same logits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kits import rows
from kits.packed import WORD_STARTS, epoch, one_pair_per_row, packed_store
from kits.small import VOCABULARY, small_config, small_objective, small_params

from bert_jax import config as configs
from bert_jax import prng
from bert_jax.objectives import base
from bert_jax.tasks.text import packed_documents

MODELS = [["bert"], ["modernbert", "model.window=8"], ["roberta"]]


@pytest.mark.slow
def test_packed_pairs_have_the_loss_and_gradients_of_unpacked_ones(tmp_path):
    packed = epoch(packed_store(tmp_path / "store"), max_predictions=20)
    unpacked = one_pair_per_row(packed)
    number = len(unpacked["rows"])
    assert number > 1.3 * len(packed["rows"])
    objective = small_objective("model.dropout=0.0", "model.attention_dropout=0.0")
    params = small_params(objective)

    def loss(params, batch):
        totals = objective.weights(batch)
        return objective.loss(params, batch, totals, jnp.uint32(prng.key(1)), train=True)

    differentiate = jax.jit(jax.value_and_grad(loss, has_aux=True))
    (loss_packed, metrics), gradients = differentiate(params, packed)
    (loss_unpacked, unpacked_metrics), unpacked_gradients = differentiate(params, unpacked)
    np.testing.assert_allclose(loss_packed, loss_unpacked, rtol=1e-6)
    for name in ("mlm_loss", "nsp_loss", "mlm_loss_masked", "nsp_accuracy"):
        np.testing.assert_allclose(metrics[name], unpacked_metrics[name], rtol=1e-5, err_msg=name)
    assert metrics["nsp_loss"][1] == number
    distances = jax.tree.map(
        lambda a, b: float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-3)),
        *(gradients, unpacked_gradients),
    )
    assert max(jax.tree.leaves(distances)) < 1e-5, distances


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS, ids=lambda m: m[0])
def test_packed_documents_have_the_logits_of_each_alone(tmp_path, model):
    keys = ["task.name=packed_documents", "phases.main.length=96", "phases.main.max_predictions=40"]
    keys += ["task.mask_rate=0.4", "model.initializer=0.2"]
    keys += ["model.max_length=96", f"model.name={model[0]}", *model[1:]]
    config = small_config(*keys)
    store, (phase,) = packed_store(tmp_path / "store"), configs.phases(config)
    dataset = packed_documents.make(config, store, WORD_STARTS)
    packed = rows.assemble(dataset, phase, rows.all_rows(dataset, phase)[:8])
    alone = one_pair_per_row(packed)
    for batch in (packed, alone):
        batch["rows"] = np.arange(len(batch["tokens"]))
    objective = base.make(config, VOCABULARY)
    params = jax.jit(objective.init)(jax.random.key(0), alone)
    one, other = (
        np.asarray(jax.jit(objective.outputs)(params, batch)["mlm_logits"])[
            batch["masked_weights"] > 0
        ]
        for batch in (packed, alone)
    )
    assert len(alone["tokens"]) > 1.5 * len(packed["tokens"]) and len(one) > 100
    np.testing.assert_allclose(one, other, atol=1e-5)

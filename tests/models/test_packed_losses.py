"""What packed pairs are trained by: the losses and gradients that they have alone, on their own and in a run."""

import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kits.packed import apart, epoch, packed_store
from kits.small import SMALL, overrides, small_objective, small_params, write_corpus

from bert_jax import config, prng, train
from bert_jax.commands import load_model


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return packed_store(tmp_path_factory.mktemp("packing") / "store")


def in_shape(batch, rows, sequences):
    """With empty rows and pairs behind the others, which weigh nothing: one program for packed and unpacked."""
    wide = {name: array.shape[1] for name, array in batch.items() if array.ndim == 2}
    wide |= dict.fromkeys(("cls_positions", "pair_labels", "pair_weights"), sequences)
    return {
        name: np.pad(
            array,
            [(0, rows - len(array)), *([(0, wide[name] - array.shape[1])] if name in wide else [])],
        )
        for name, array in batch.items()
    }


def no_dropout():
    return small_objective("model.dropout=0.0", "model.attention_dropout=0.0")


def test_loss_and_gradients_are_those_of_the_pairs_alone(store):
    packed = epoch(store, predictions=20)
    alone = apart(packed)
    number = len(alone["rows"])
    assert number > 1.3 * len(packed["rows"])
    packed, alone = (in_shape(batch, number, 4) for batch in (packed, alone))
    objective = no_dropout()
    params = small_params(objective)

    def loss(params, batch):
        totals = objective.weights(batch)
        return objective.loss(params, batch, totals, jnp.uint32(prng.key(1)), train=True)

    differentiate = jax.jit(jax.value_and_grad(loss, has_aux=True))
    (one, metrics), gradients = differentiate(params, packed)
    (other, apart_metrics), apart_gradients = differentiate(params, alone)
    np.testing.assert_allclose(one, other, rtol=1e-6)
    for name in ("mlm_loss", "nsp_loss", "mlm_loss_masked", "nsp_accuracy"):
        np.testing.assert_allclose(metrics[name], apart_metrics[name], rtol=1e-5, err_msg=name)
    assert metrics["nsp_loss"][1] == number
    for path, mine in jax.tree.leaves_with_path(gradients):
        theirs = apart_gradients
        for key in path:
            theirs = theirs[key.key]
        worst = np.abs(mine - theirs).max() / max(np.abs(theirs).max(), 1e-3)
        assert worst < 1e-5, (jax.tree_util.keystr(path), worst)


def test_no_pair_sees_another(store):
    batch = epoch(store)
    objective = no_dropout()
    params = small_params(objective)
    outputs = jax.jit(objective.outputs)
    before = outputs(params, batch)
    changed = batch | {"tokens": np.where(batch["sequence_ids"] == 2, 7, batch["tokens"])}
    after = outputs(params, changed)
    several = np.arange(4) < batch["sequence_ids"].max(1)[:, None]
    moved = np.abs(after["pair_logits"] - before["pair_logits"]).max(-1)
    second = several & (np.arange(4) == 1)
    assert second.sum() > 20 and (moved[second] > 0).all()
    assert (moved[several & ~second] == 0).all()
    owner = np.take_along_axis(batch["sequence_ids"], batch["masked_positions"], 1)
    moved = np.abs(after["mlm_logits"] - before["mlm_logits"]).max(-1)
    used = batch["masked_weights"] > 0
    assert (moved[used & (owner != 2)] == 0).all() and (moved[used & (owner == 2)] > 0).all()


@pytest.mark.slow
def test_a_packed_run_goes_on_with_the_same_bits(tmp_path):
    """From a checkpoint in the middle of an epoch; in micro-batches with the same losses."""
    write_corpus(tmp_path / "corpus.txt", documents=60)
    keys = {"corpus.source": tmp_path / "corpus.txt", "store": tmp_path / "store"}
    keys |= {"phases.main.sequences": 3}

    def run(name, **changes):
        settings = config.load("demo", overrides(SMALL | keys | changes))
        assert train.pretrain(settings, tmp_path / name) == 0
        text = (tmp_path / name / "metrics.jsonl").read_text()
        losses = {
            (line["step"], line["split"]): line["loss"]
            for line in map(json.loads, text.splitlines())
        }
        return losses, load_model.open_run(tmp_path / name).params

    losses, params = run("run")
    shutil.copytree(tmp_path / "run", tmp_path / "again")
    shutil.rmtree(tmp_path / "again/checkpoints/20")
    again, same = run("again")
    assert again == losses and len(losses) == 6
    jax.tree.map(np.testing.assert_array_equal, params, same)
    parts, _ = run("parts", **{"train.micro_batches": 2})
    assert parts == pytest.approx(losses, rel=1e-5)

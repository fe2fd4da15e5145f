"""Networks from outside of the package (tests/external) whose blocks have an attention of their own: a memory in front
of segments, passes through one block that are charged for, and attention to content and positions apart."""

import re

import jax
import numpy as np
import pytest
from kits import corpora
from kits.objectives import assert_halves_add_up
from kits.paths import ROOT
from kits.runs import lines
from kits.small import (
    VOCABULARY,
    loss_of,
    mesh_of,
    overrides,
    small_batch,
    small_config,
    small_objective,
    small_params,
    synthetic,
)

from bert_jax.layers.embeddings import padded_size
from bert_jax.layers.network import Network
from bert_jax.models import base as models
from bert_jax.parallel import mesh as meshes
from bert_jax.train import pretrain

SEGMENTS = "model.name=external.segments", "objective.name=causal_lm", "task.name=token_blocks"
PONDER = "model.name=external.universal", "model.layers=3", "objective.name=external.ponder"
DISENTANGLED = "model.name=external.disentangled", "task.pair_task=none", "model.max_length=40"
# Of transformers' DeBERTa, as the keys above.
SIZES = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
SIZES |= dict(vocab_size=200, max_position_embeddings=40, type_vocab_size=0, layer_norm_eps=1e-5)
SIZES |= dict(relative_attention=True, share_att_key=True, pos_att_type=["p2c", "c2p"])
SIZES |= dict(position_biased_input=False, norm_rel_ebd="layer_norm")


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
        whole = network.apply(params, batch, method=Network.states)
        return whole, network.apply(params, batch, method="states"), short.apply(params, batch)

    whole, states, of_short = compute(params)
    np.testing.assert_allclose(np.stack(states), np.stack(whole), atol=2e-6)
    assert abs(of_short - whole[-1]).max() > 1e-3


@pytest.mark.full
@pytest.mark.parametrize("buckets", [0, 8])
def test_states_of_deberta_are_those_of_transformers(buckets):
    """At real tokens; with a relative position for each distance, and with fewer."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    from transformers.models.deberta_v2 import modeling_deberta_v2

    config = modeling_deberta_v2.DebertaV2Config(**SIZES, position_buckets=buckets or -1)
    theirs = modeling_deberta_v2.DebertaV2Model(config).eval()
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    network, batch, _ = make_network(*DISENTANGLED, f"model.buckets={buckets}")
    is_real = np.arange(20) < [[20], [13], [7], [1]]
    batch["sequence_ids"] = is_real.astype(np.int32)
    states = jax.jit(network.apply)({"params": deberta_params(theirs)}, batch)
    inputs = {"input_ids": batch["tokens"], "attention_mask": is_real}
    with torch.no_grad():
        expected = theirs(**{name: torch.tensor(x).long() for name, x in inputs.items()})
    expected = expected.last_hidden_state.numpy()
    np.testing.assert_allclose(states[is_real], expected[is_real], atol=2e-5)


def deberta_params(model) -> dict:
    """Returns the parameters of the network, from those of a model of transformers."""
    arrays = {name: array.detach().numpy() for name, array in model.named_parameters()}

    def dense(name):
        return {"kernel": arrays[f"{name}.weight"].T, "bias": arrays[f"{name}.bias"]}

    def norm(name):
        return {"scale": arrays[f"{name}.weight"], "bias": arrays[f"{name}.bias"]}

    words = arrays["embeddings.word_embeddings.weight"]
    params = {
        "embedder": {"words": np.pad(words, ((0, padded_size(len(words)) - len(words)), (0, 0)))},
        "embedder_norm": norm("embeddings.LayerNorm"),
        "relative": arrays["encoder.rel_embeddings.weight"],
        "relative_norm": norm("encoder.LayerNorm"),
    }
    for number in range(len(model.encoder.layer)):
        layer = f"encoder.layer.{number}"
        names = {name: f"{layer}.attention.self.{name}_proj" for name in ("query", "key", "value")}
        names["out"] = f"{layer}.attention.output.dense"
        up, down = f"{layer}.intermediate.dense", f"{layer}.output.dense"
        params[f"blocks_{number}"] = {
            "attention": {name: dense(theirs) for name, theirs in names.items()},
            "attention_norm": norm(f"{layer}.attention.output.LayerNorm"),
            "feed_forward": {"up": dense(up), "down": dense(down)},
            "feed_forward_norm": norm(f"{layer}.output.LayerNorm"),
        }
    return params


def test_the_layers_of_the_page_share_a_bias(tmp_path, monkeypatch):
    """docs/networks.md: it is learned, and each distance has its own."""
    (text,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/networks.md").read_text(), re.DOTALL)
    (tmp_path / "page").mkdir()
    (tmp_path / "page/t5.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    objective = small_objective("model.name=page.t5", "task.pair_task=none")
    params = small_params(objective)
    gradients = jax.jit(jax.grad(loss_of(objective)))(params, small_batch(rows=2))["network"]
    assert (abs(gradients["distances"]).max(axis=1) > 1e-6).all()
    assert gradients["blocks_1"].keys() == {
        "attention",
        "attention_norm",
        "feed_forward",
        "feed_forward_norm",
    }


@pytest.fixture(scope="module")
def ponder():
    """(objective, parameters, batch) of three passes through one block."""
    objective = small_objective(*PONDER)
    return objective, small_params(objective), small_batch(rows=2)


def test_a_loss_captures_the_halting_of_each_pass(ponder):
    objective, params, batch = ponder
    _, kept = objective.capture(params, batch, lambda module, name: name == "halt")
    assert len(kept) == 3 and all("network/halt/" in path for path in kept)
    assert all(halt.shape == batch["tokens"].shape for halt in kept.values())
    totals = {"ponder": objective.weights(batch)["ponder"]}

    @jax.jit
    @jax.grad
    def differentiate(params):
        return objective.loss(params, batch, totals, 0, train=False)[0]

    gradients = differentiate(params)["network"]
    assert abs(gradients["halting"]["kernel"]).max() > 1e-3
    assert abs(gradients["blocks_0"]["attention"]["value"]["kernel"]).max() > 1e-4


def test_dropout_of_a_captured_loss_is_that_of_masked_lm(ponder):
    objective, params, batch = ponder
    names = "objective.name=mlm", "task.pair_task=none"
    plain = small_objective(*PONDER[:2], *names)

    @jax.jit
    def compute(params):
        def sum_nats(objective, train):
            return objective.loss(params, batch, {}, 5, train=train)[1]["mlm_loss"][0]

        losses = [sum_nats(part, train=True) for part in (objective, plain)]
        return *losses, sum_nats(plain, train=False)

    captured, expected, without_dropout = map(float, compute(params))
    assert captured == pytest.approx(expected, rel=1e-5)
    assert abs(captured - without_dropout) > 1e-3


@pytest.mark.slow
def test_halves_of_a_batch_add_up_with_captured_values(ponder):
    assert_halves_add_up(*ponder)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["external.segments", "external.disentangled"])
def test_gradients_on_a_mesh_are_those_of_one_device(name):
    """With parallel heads, and layers that are computed again."""
    names = f"model.name={name}", "task.pair_task=none", "model.max_length=40"
    objective = small_objective(*names, "train.remat=attention")
    batch = synthetic(batch=4, length=32, predictions=5, vocabulary=VOCABULARY.size, sequences=2)
    params = jax.jit(objective.init)(jax.random.key(0), batch)
    rules = models.shardings(small_config(*names))

    def learn(mesh):
        with jax.set_mesh(mesh):
            placed = jax.device_put(params, meshes.parameters(params, mesh, rules))
            gradients = jax.jit(jax.grad(loss_of(objective)))(
                placed, jax.device_put(batch, meshes.rows(mesh))
            )
        return jax.flatten_util.ravel_pytree(jax.device_get(gradients))[0]

    expected = learn(mesh_of((1, 1, 1)))
    scale = abs(expected).max()
    np.testing.assert_allclose(learn(mesh_of((2, 2, 2))) / scale, expected / scale, atol=1e-5)


@pytest.mark.slow
def test_it_trains(tmp_path):
    """A network and an objective from outside, on eight devices."""
    corpora.write(tmp_path / "corpus.txt", corpora.make_text(150))
    keys = {"corpus.source": tmp_path / "corpus.txt", "store": tmp_path / "store"}
    config = small_config(*overrides(keys | {"phases.main.steps": 10}), *PONDER)
    assert pretrain(config, tmp_path / "run") == 0
    first, last = [line["loss"] for line in lines(tmp_path / "run") if line["split"] == "train"]
    assert last < first - 0.1

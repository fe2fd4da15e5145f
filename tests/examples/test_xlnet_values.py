"""Values of XLNet and Transformer-XL beside those of transformers' XLNet in float64 (PyTorch)."""

from functools import partial

import jax
import numpy as np
import pytest
from kits.permuted import LENGTH, PIECES, ROWS, TRANSFORMER_XL, XLNET, make_network
from xlnet import exchange

from bert_jax.convert import names
from bert_jax.objectives import base

KEYS = {"name": "xlnet.model", "layers": 2, "width": 32, "heads": 4, "feed_forward": 128}
SIZES = dict(n_layer=2, d_model=32, n_head=4, d_inner=128, vocab_size=PIECES, dropout=0.0)
MEMORY = 6


def make_theirs(**settings):
    """Returns a model of transformers in float64 with random parameters."""
    torch = pytest.importorskip("torch")
    from transformers import XLNetConfig, XLNetLMHeadModel

    torch.manual_seed(0)
    theirs = XLNetLMHeadModel(XLNetConfig(**SIZES, **settings)).double().eval()
    for name, parameter in theirs.named_parameters():
        is_scale = name.endswith("layer_norm.weight")
        torch.nn.init.normal_(parameter, mean=float(is_scale), std=0.2)
    # It computes these in float32.
    encode = theirs.transformer.relative_positional_encoding
    theirs.transformer.relative_positional_encoding = lambda *a, **b: encode(*a, **b).double()
    return theirs


def to_params(arrays: dict) -> dict:
    """Returns {path: array} of the tensors of transformers, which may be gradients."""
    load, shapes = exchange.read_tensors(arrays.get, {}, {})
    params = {}
    for entry in names.parameters(KEYS):
        if entry.huggingface in arrays:
            array = load(entry.huggingface)
            params[entry.path] = array.T if "huggingface" in entry.transposed else array
    return params


def filled(params, arrays: dict):
    """Returns a tree with the arrays of `to_params`; rows of padding are zeros."""

    def fill(path, leaf):
        array = arrays["/".join(key.key for key in path)]
        return np.pad(array, [(0, b - a) for a, b in zip(array.shape, leaf.shape, strict=True)])

    return jax.tree.map_with_path(fill, params)


def tensors_of(theirs) -> dict:
    return {name: x.detach().numpy() for name, x in theirs.named_parameters()}


def gradients_of(theirs) -> dict:
    return {name: x.grad.numpy() for name, x in theirs.named_parameters() if x.grad is not None}


@pytest.mark.full
@pytest.mark.parametrize("memory", [0, MEMORY])
def test_streams_loss_and_gradients_are_those_of_transformers(memory):
    """With a random order, two segments, [CLS] in its own, padding, and a memory."""
    theirs = make_theirs()
    import torch

    network, batch, params = make_network(XLNET, "model.layers=2", "model.epsilon=1e-12")
    params = {"network": params["params"], "lm": {"bias": np.zeros(128, np.float32)}}
    params = filled(params, to_params(tensors_of(theirs)))
    memories = np.random.default_rng(3).normal(size=(2, ROWS, memory, 32))
    ranks = batch["ranks"]
    hidden = ranks[:, None] >= np.maximum(ranks, 1)[..., None]
    mapping = batch["masked_positions"][..., None] == np.arange(LENGTH)
    labels = np.where(batch["masked_weights"] > 0, batch["masked_targets"], -100)
    expected = theirs(
        input_ids=torch.tensor(batch["tokens"]).long(),
        attention_mask=torch.tensor(batch["sequence_ids"]).double(),
        token_type_ids=torch.tensor(batch["segments"]).long(),
        perm_mask=torch.tensor(hidden).double(),
        target_mapping=torch.tensor(mapping).double(),
        mems=[*torch.tensor(memories).swapaxes(1, 2)] if memory else None,
        labels=torch.tensor(labels).long(),
        output_hidden_states=True,
    )
    expected.loss.backward()

    @jax.jit
    @partial(jax.value_and_grad, has_aux=True)
    def compute(params):
        def run(network):
            in_front = [*memories.astype(np.float32)] if memory else None
            g, h = network.streams(batch, None, in_front)
            return g, h, network.vocabulary_logits(g, params["lm"]["bias"])

        g, h, logits = network.apply({"params": params["network"]}, method=run)
        nats = base.cross_entropy(logits, batch["masked_targets"]) * batch["masked_weights"]
        return nats.sum() / batch["masked_weights"].sum(), (g, h, logits)

    (loss, (g, h, logits)), gradients = compute(params)
    is_used = batch["masked_weights"] > 0
    is_real = batch["sequence_ids"] > 0
    # Theirs are h and g of each layer. No query reads the contents of the last one.
    of_h, of_g = (expected.hidden_states[number].detach().numpy() for number in (-4, -1))
    np.testing.assert_allclose(h[is_real], of_h[is_real], atol=2e-5)
    np.testing.assert_allclose(g[is_used], of_g[is_used], atol=2e-5)
    of_logits = expected.logits.detach().numpy()
    np.testing.assert_allclose(logits[is_used][:, :PIECES], of_logits[is_used], atol=2e-5)
    assert float(loss) == pytest.approx(expected.loss.item(), abs=1e-6)
    theirs = filled(params, to_params(gradients_of(theirs)))
    for (path, ours), exact in zip(
        jax.tree.leaves_with_path(gradients), jax.tree.leaves(theirs), strict=True
    ):
        largest = abs(exact).max()
        assert largest > 1e-5, path
        np.testing.assert_allclose(ours, exact, atol=1e-4 * largest, err_msg=str(path))


@pytest.mark.full
@pytest.mark.parametrize("memory", [4, 20])
def test_segments_of_transformer_xl_are_those_of_transformers(memory):
    """Four of them, one after the other, fed with memories."""
    settings = dict(attn_type="uni", ff_activation="relu", layer_norm_eps=1e-5, mem_len=memory)
    theirs = make_theirs(**settings)
    import torch

    changes = "model.layers=2", "model.segment=4", f"model.memory={memory}"
    network, batch, params = make_network(TRANSFORMER_XL, *changes)
    params = filled({"network": params["params"]}, to_params(tensors_of(theirs)))
    tokens = np.random.default_rng(4).integers(5, PIECES, (ROWS, 15)).astype(np.int32)
    batch = {"tokens": tokens, "sequence_ids": np.ones_like(tokens), "positions": 0 * tokens}
    bias = theirs.lm_loss.bias.detach().numpy()

    @jax.jit
    def compute(params):
        def run(network):
            return network.vocabulary_logits(network(batch), np.pad(bias, (0, 128 - PIECES)))

        return network.apply({"params": params["network"]}, method=run)

    logits = compute(params)[..., :PIECES]
    memories = None
    for start in range(0, 15, 4):
        part = torch.tensor(tokens[:, start : start + 4]).long()
        embeddings = theirs.transformer.word_embedding(part) * 32**0.5
        with torch.no_grad():
            expected = theirs(inputs_embeds=embeddings, mems=memories, use_mems=True)
        memories = expected.mems
        np.testing.assert_allclose(logits[:, start : start + 4], expected.logits, atol=2e-5)

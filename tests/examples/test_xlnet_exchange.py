"""XLNet and Transformer-XL beside transformers' XLNet (PyTorch), in both directions."""

import json
import shutil
from functools import partial

import jax
import numpy as np
import pytest
from kits import runs
from kits.permuted import (
    LENGTH,
    PIECES,
    ROWS,
    TRANSFORMER_XL,
    XLNET,
    make_network,
)
from safetensors.numpy import load_file, save_file
from xlnet import exchange

from bert_jax.cli import main
from bert_jax.convert import names, open_model
from bert_jax.errors import BadInput
from bert_jax.inference import batches
from bert_jax.objectives import base

SYSTEM = "model.name=xlnet.model", "objective.name=xlnet.objective", "task.name=xlnet.task"
SHORT = *SYSTEM, "phases.main.length=16", "phases.main.max_predictions=5"
KEYS = {"name": "xlnet.model", "layers": 2, "width": 32, "heads": 4, "feed_forward": 128}
SIZES = dict(n_layer=2, d_model=32, n_head=4, d_inner=128, vocab_size=PIECES, dropout=0.0)
MEMORY = 6


# --- Values ---------------------------------------------------------------------------------------


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
            given = [*memories.astype(np.float32)] if memory else None
            g, h = network.streams(batch, None, given)
            return g, h, network.vocabulary_logits(g, params["lm"]["bias"])

        g, h, logits = network.apply({"params": params["network"]}, method=run)
        nats = base.cross_entropy(logits, batch["masked_targets"]) * batch["masked_weights"]
        return nats.sum() / batch["masked_weights"].sum(), (g, h, logits)

    (loss, (g, h, logits)), gradients = compute(params)
    is_used = batch["masked_weights"] > 0
    is_real = batch["sequence_ids"] > 0
    of_h, of_g = (x.detach().numpy() for x in expected.hidden_states[-2:])
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


# --- Directories ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """(tokenizer, params) of a run, and the directory of its export."""
    directory = tmp_path_factory.mktemp("xlnet")
    ranks = np.ones((1, 8), np.int32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "with_target", lambda batch: batch | {"ranks": ranks})
        _, _, tokenizer, params = runs.make_run(directory / "run", *SYSTEM, kind="unigram")
    paths = "--model", str(directory / "run"), "--output", str(directory / "out")
    assert main(["export", *paths]) == 0
    return (tokenizer, params), directory / "out"


def assert_equal(arrays: dict, expected: dict, pieces: int):
    """Asserts that arrays are the expected ones of their paths, without the padding of the vocabulary."""
    for path, array in arrays.items():
        size = pieces if path in ("lm/bias", "network/embedder/words") else None
        np.testing.assert_array_equal(array[:size], expected[path][:size], err_msg=path)


def test_an_export_is_imported_again(exported):
    (_, params), directory = exported
    ours = names.by_path(params)
    model = open_model.open_model(directory, [*SHORT])
    assert model.info["fresh"] == [] and model.info["imported"]["unused"] == []
    assert_equal(names.by_path(model.params), ours, model.vocabulary.size)
    tensors = load_file(directory / "model.safetensors")
    attention = ours["network/blocks_1/attention/query/kernel"]
    layer = "transformer.layer.1.rel_attn"
    np.testing.assert_array_equal(tensors[f"{layer}.q"].reshape(32, 32), attention)
    out = ours["network/blocks_1/attention/out/kernel"]
    np.testing.assert_array_equal(tensors[f"{layer}.o"].reshape(32, 32), out.T)
    assert tensors["transformer.mask_emb"].shape == (1, 1, 32)


def change(directory, tmp_path, **values):
    """Returns a copy of an export with other values in its config.json."""
    source = tmp_path / "source"
    shutil.copytree(directory, source)
    path = source / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))
    return source


@pytest.mark.parametrize(("key", "value"), [("attn_type", "uni"), ("clamp_len", 9), ("d_model", 0)])
def test_other_models_are_refused(exported, tmp_path, key, value):
    source = change(exported[1], tmp_path, **{key: value})
    with pytest.raises(BadInput, match=f"config.json: {key}"):
        open_model.open_model(source, [*SYSTEM])


def test_matrices_of_another_shape_are_refused(exported, tmp_path):
    source = change(exported[1], tmp_path)
    tensors = load_file(source / "model.safetensors")
    name = "transformer.layer.0.rel_attn.q"
    for array in (tensors[name][:, :1], tensors[name][:, 0]):
        save_file(tensors | {name: array}, source / "model.safetensors")
        with pytest.raises(BadInput, match=name):
            open_model.open_model(source, [*SYSTEM])


def test_without_its_name_the_model_is_unknown(exported):
    with pytest.raises(BadInput, match="model_type is 'xlnet'"):
        open_model.open_model(exported[1])


TEXTS = "The fox ran.", "It was not seen again."


@pytest.mark.full
def test_transformers_opens_an_export(exported):
    """Its classes have all tensors, and the tokenizer puts texts into the frame."""
    torch = pytest.importorskip("torch")
    import transformers

    (tokenizer, params), directory = exported
    theirs, report = transformers.XLNetLMHeadModel.from_pretrained(
        directory, output_loading_info=True
    )
    assert not any(report[name] for name in ("missing_keys", "unexpected_keys"))
    assert isinstance(transformers.AutoModel.from_pretrained(directory), transformers.XLNetModel)
    words = transformers.AutoTokenizer.from_pretrained(directory)
    inputs = words([TEXTS[0], TEXTS[1]], [TEXTS[1], ""], padding=True, return_tensors="pt")
    a, b = tokenizer.encode([*TEXTS])
    sep, cls = tokenizer.special["sep"], tokenizer.special["cls"]
    assert inputs["input_ids"][0].tolist() == [*a, sep, *b, sep, cls]
    assert inputs["token_type_ids"][0].tolist() == [0] * (len(a) + 1) + [1] * (len(b) + 1) + [2]
    assert inputs["input_ids"][1, -1] == cls and inputs["attention_mask"][1, 0] == 0

    model = open_model.open_model(directory, [*SHORT])
    row = [([*a, sep, *b, sep, cls], 0)]
    batch = batches.make_batch([row], len(row[0][0]))
    batch["segments"] = inputs["token_type_ids"][:1].numpy().astype(np.int32)
    network = model.objective.module.network
    ours = network.apply({"params": params["network"]}, batch)
    with torch.no_grad():
        expected = theirs.transformer.eval()(
            input_ids=inputs["input_ids"][:1], token_type_ids=inputs["token_type_ids"][:1]
        )
    np.testing.assert_allclose(ours, expected.last_hidden_state, atol=2e-5)


@pytest.mark.full
@pytest.mark.parametrize(("name", "fresh"), [("LMHeadModel", []), ("Model", ["lm"])])
def test_directories_of_transformers_are_read(exported, tmp_path, name, fresh):
    """With its own tokenizer, too, whose special tokens have other names."""
    pytest.importorskip("torch")
    import transformers

    directory = exported[1]
    source = tmp_path / "source"
    getattr(transformers, f"XLNet{name}").from_pretrained(directory).save_pretrained(source)
    pieces = ["<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>"]
    count = json.loads((source / "config.json").read_text())["vocab_size"] - len(pieces)
    words = [f"▁{chr(0x4E00 + number)}" for number in range(count)]
    vocabulary = [(piece, -float(number)) for number, piece in enumerate(pieces + words)]
    theirs = transformers.XLNetTokenizer(vocab=vocabulary)
    theirs.save_pretrained(source)
    model = open_model.open_model(source, [*SHORT])
    assert model.info["fresh"] == fresh
    special = model.tokenizer.special
    assert [special[key] for key in ("unk", "cls", "sep", "pad", "mask")] == [0, 3, 4, 5, 6]
    text = f"{words[5][1:]} {words[2][1:]}"
    assert model.tokenizer.encode([text]) == [theirs(text, add_special_tokens=False)["input_ids"]]
    before, after = (names.by_path(x) for x in (exported[0][1], model.params))
    kept = [path for path in after if path.partition("/")[0] not in fresh]
    assert len(kept) > 30
    assert_equal({path: after[path] for path in kept}, before, model.vocabulary.size)

"""The weights and config.json of an exported directory (all bits of them: tests/commands/test_export.py)."""

import json

import numpy as np
import pytest
from kits.runs import make_run, run_batch
from safetensors.numpy import load_file

from bert_jax.commands.export import without
from bert_jax.convert import names, to_huggingface
from bert_jax.objectives import base


def written(place, world, fresh=()):
    """config.json of the directory that is written, without the parts that nobody has trained."""
    config, vocabulary, tokenizer, params = world
    place.mkdir()
    to_huggingface.write(place, config, vocabulary, tokenizer, without(params, fresh))
    return json.loads((place / "config.json").read_text())


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("world") / "run")


def test_config_json(tmp_path, world):
    config, vocabulary, *_ = world
    values = written(tmp_path / "out", world)
    expected = {"architectures": ["BertForPreTraining"], "model_type": "bert", "hidden_size": 32}
    expected |= {"vocab_size": vocabulary.size, "num_hidden_layers": 2, "intermediate_size": 128}
    expected |= {"num_attention_heads": 4, "max_position_embeddings": 32, "type_vocab_size": 2}
    expected |= {"hidden_act": "gelu_new", "layer_norm_eps": 1e-12, "tie_word_embeddings": True}
    assert values | expected == values
    config = config.copy_and_resolve_references()
    config.model.update(activation="relu", feed_forward=48, epsilon=1e-5)
    values = to_huggingface.config_json(config, vocabulary, ["mlm"])
    expected = {"hidden_act": "relu", "intermediate_size": 48, "layer_norm_eps": 1e-5}
    assert values | expected == values


def test_kernels_lie_as_pytorch_has_them(tmp_path, world):
    """By names that stand here, not in our table."""
    written(tmp_path / "out", world)
    tensors = load_file(tmp_path / "out/model.safetensors")
    block = world[-1]["encoder"]["blocks_1"]
    for name, ours in (
        ("attention.self.query", block["attention"]["query"]),
        ("intermediate.dense", block["feed_forward"]["up"]),
    ):
        theirs = tensors[f"bert.encoder.layer.1.{name}.weight"]
        np.testing.assert_array_equal(theirs, ours["kernel"].T)


@pytest.mark.parametrize(
    "fresh, architecture, left_out",
    [
        (("pair",), "BertForMaskedLM", ("cls.seq_relationship",)),
        (("mlm",), "BertForNextSentencePrediction", ("cls.predictions",)),
        (("mlm", "pair", "pooler"), "BertModel", ("cls.", "bert.pooler")),
    ],
)
def test_heads_that_nobody_trained_stay_out(tmp_path, world, fresh, architecture, left_out):
    values = written(tmp_path / "out", world, fresh)
    assert values["architectures"] == [architecture]
    found = set(load_file(tmp_path / "out/model.safetensors"))
    every = {item.huggingface for item in names.parameters(2)}
    assert found == {name for name in every if not name.startswith(left_out)}


# --- With PyTorch ---------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("activation", ["gelu_tanh", "gelu", "relu"])
def test_transformers_computes_the_same(tmp_path, activation):
    """Its class finds every tensor that it asks for, and no other."""
    torch = pytest.importorskip("torch")
    from transformers import AutoModelForPreTraining

    world = make_run(tmp_path / "run", f"model.activation={activation}")
    config, vocabulary, _, params = world
    written(tmp_path / "out", world)
    arrays = run_batch(vocabulary)
    ours = base.make(config, vocabulary).outputs(params, arrays)
    load = AutoModelForPreTraining.from_pretrained
    model, info = load(tmp_path / "out", output_loading_info=True)
    assert not any(info.values())
    with torch.no_grad():
        theirs = model(
            input_ids=torch.tensor(arrays["tokens"]).long(),
            token_type_ids=torch.tensor(arrays["segments"]).long(),
            attention_mask=torch.tensor(arrays["sequence_ids"]).long(),
        )
    places = arrays["masked_positions"][..., None]
    expected = np.take_along_axis(theirs.prediction_logits.numpy(), places, axis=1)
    found = np.asarray(ours["mlm_logits"])[..., : vocabulary.size]
    assert np.abs(found - expected).max() < 2e-5
    pairs = np.asarray(ours["pair_logits"])[:, 0]
    assert np.abs(pairs - theirs.seq_relationship_logits.numpy()).max() < 2e-5

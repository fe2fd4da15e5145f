"""The weights and config.json of an exported directory (bitwise: tests/commands/test_export.py)."""

import json

import numpy as np
import pytest
from kits.runs import make_run, run_batch
from safetensors.numpy import load_file

from bert_jax.convert import names, to_huggingface
from bert_jax.objectives import base


def write(directory, run, fresh=()):
    """Writes a directory without the parts in `fresh`; returns its config.json."""
    config, vocabulary, tokenizer, params = run
    directory.mkdir()
    model = config, vocabulary, tokenizer, names.drop_parts(params, fresh)
    to_huggingface.write(directory, *model, config.model.max_length)
    return json.loads((directory / "config.json").read_text())


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("run") / "run")


def test_config_json_has_the_settings_of_the_run(tmp_path, run):
    config, vocabulary, *_ = run
    values = write(tmp_path / "out", run)
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


def test_kernels_have_the_layout_of_pytorch(tmp_path, run):
    """The names are spelled out here, independently of names.py."""
    write(tmp_path / "out", run)
    tensors = load_file(tmp_path / "out/model.safetensors")
    block = run[-1]["encoder"]["blocks_1"]
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
def test_untrained_heads_are_not_written(tmp_path, run, fresh, architecture, left_out):
    values = write(tmp_path / "out", run, fresh)
    assert values["architectures"] == [architecture]
    tensors = set(load_file(tmp_path / "out/model.safetensors"))
    every = {item.huggingface for item in names.parameters(2)}
    assert tensors == {name for name in every if not name.startswith(left_out)}


# --- With PyTorch ---------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("activation", ["gelu_tanh", "gelu", "relu"])
def test_logits_equal_those_of_transformers(tmp_path, activation):
    """The checkpoint has exactly the tensors that the class of transformers expects."""
    torch = pytest.importorskip("torch")
    from transformers import AutoModelForPreTraining

    run = make_run(tmp_path / "run", f"model.activation={activation}")
    config, vocabulary, _, params = run
    write(tmp_path / "out", run)
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
    positions = arrays["masked_positions"][..., None]
    expected = np.take_along_axis(theirs.prediction_logits.numpy(), positions, axis=1)
    logits = np.asarray(ours["mlm_logits"])[..., : vocabulary.size]
    assert np.abs(logits - expected).max() < 2e-5
    pairs = np.asarray(ours["pair_logits"])[:, 0]
    assert np.abs(pairs - theirs.seq_relationship_logits.numpy()).max() < 2e-5

"""The weights and config.json of an exported directory: every tensor, read back by others."""

import json
import math

import jax
import numpy as np
import pytest
from kits.runs import make_run, run_batch
from safetensors import safe_open
from safetensors.numpy import load_file

from bert_jax.commands.export import without
from bert_jax.convert import names, to_huggingface
from bert_jax.errors import BadInput
from bert_jax.objectives import base


def written(place, world, fresh=()):
    config, vocabulary, tokenizer, params = world
    place.mkdir()
    return to_huggingface.write(place, config, vocabulary, tokenizer, without(params, fresh))


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("world") / "run")


def at(params, path: str):
    for key in path.split("/"):
        params = params[key]
    return np.asarray(params)


def test_every_parameter_is_there_once_and_bitwise(tmp_path, world):
    config, vocabulary, _, params = world
    written(tmp_path / "out", world)
    tensors = load_file(tmp_path / "out/model.safetensors")
    for parameter in names.parameters(config.model.layers):
        expected = at(params, parameter.path)
        if parameter.padded:
            assert len(expected) == 256 > vocabulary.size
            expected = expected[: vocabulary.size]
        if "huggingface" in parameter.transposed:
            expected = expected.T
        found = tensors.pop(parameter.huggingface)
        assert found.dtype == np.float32 and np.array_equal(found, expected), parameter
    assert not tensors
    assert len(names.parameters(2)) == len(jax.tree.leaves(params))


def test_the_header_is_what_the_format_asks_for(tmp_path, world):
    written(tmp_path / "out", world)
    path = tmp_path / "out/model.safetensors"
    size = int.from_bytes(path.read_bytes()[:8], "little")
    header = json.loads(path.read_bytes()[8 : 8 + size])
    assert size % 8 == 0 and header.pop("__metadata__") == {"format": "pt"}
    ends = [0]
    for tensor in header.values():
        assert tensor["data_offsets"][0] == ends[-1]
        ends.append(ends[-1] + 4 * math.prod(tensor["shape"]))
        assert tensor["data_offsets"][1] == ends[-1]
    assert path.stat().st_size == 8 + size + ends[-1]
    with safe_open(path, "numpy") as file:
        assert file.metadata() == {"format": "pt"}


def test_config_json(tmp_path, world):
    config, vocabulary, *_ = world
    written(tmp_path / "out", world)
    values = json.loads((tmp_path / "out/config.json").read_text())
    assert values["architectures"] == ["BertForPreTraining"] and values["model_type"] == "bert"
    expected = {"vocab_size": vocabulary.size, "hidden_size": 32, "num_hidden_layers": 2}
    expected |= {"num_attention_heads": 4, "intermediate_size": 128, "max_position_embeddings": 32}
    expected |= {"type_vocab_size": 2, "hidden_act": "gelu_new", "layer_norm_eps": 1e-12}
    expected |= {"pad_token_id": 0, "tie_word_embeddings": True, "dtype": "float32"}
    assert values | expected == values
    config = config.copy_and_resolve_references()
    config.model.update(activation="relu", feed_forward=48, epsilon=1e-5)
    values = to_huggingface.config_json(config, vocabulary, ["mlm"])
    expected = {"hidden_act": "relu", "intermediate_size": 48, "layer_norm_eps": 1e-5}
    assert values | expected == values


@pytest.mark.parametrize(
    "pairs, fresh, architecture, without",
    [
        ("none", (), "BertForMaskedLM", ("bert.pooler", "cls.seq_relationship")),
        ("sop", (), "BertForPreTraining", ()),
        ("nsp", ("pair",), "BertForMaskedLM", ("cls.seq_relationship",)),
        ("nsp", ("mlm",), "BertForNextSentencePrediction", ("cls.predictions",)),
        ("nsp", ("mlm", "pair"), "BertModel", ("cls.",)),
        ("nsp", ("mlm", "pair", "pooler"), "BertModel", ("cls.", "bert.pooler")),
    ],
)
def test_heads_that_are_not_there_stay_out(tmp_path, pairs, fresh, architecture, without):
    world = make_run(tmp_path / "run", f"objective.pairs={pairs}")
    written(tmp_path / "out", world, fresh)
    values = json.loads((tmp_path / "out/config.json").read_text())
    assert values["architectures"] == [architecture]
    found = load_file(tmp_path / "out/model.safetensors")
    for start in ("bert.embeddings", "bert.pooler", "cls.predictions", "cls.seq_relationship"):
        kept = not start.startswith(without) if without else True
        assert any(name.startswith(start) for name in found) == kept, start


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_weights_that_are_not_finite_are_not_published(tmp_path, world, value):
    config, vocabulary, tokenizer, params = world
    broken = jax.tree.map(np.array, params)
    broken["encoder"]["blocks_1"]["attention"]["query"]["kernel"][3, 4] = value
    with pytest.raises(
        BadInput, match=r"^bert\.encoder\.layer\.1\.attention\.self\.query\.weight:"
    ):
        written(tmp_path / "out", (config, vocabulary, tokenizer, broken))


@pytest.mark.full
@pytest.mark.parametrize("activation", ["gelu_tanh", "gelu", "relu"])
def test_transformers_computes_the_same(tmp_path, activation):
    torch = pytest.importorskip("torch")
    from transformers import AutoModelForPreTraining

    world = make_run(tmp_path / "run", f"model.activation={activation}")
    config, vocabulary, _, params = world
    written(tmp_path / "out", world)
    arrays = run_batch(vocabulary)
    assert not arrays["sequence_ids"].all() and arrays["segments"].any()
    ours = base.make(config, vocabulary).outputs(params, arrays)
    model = AutoModelForPreTraining.from_pretrained(tmp_path / "out")
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


@pytest.mark.full
def test_the_classes_of_transformers_find_all_they_ask_for(tmp_path, world):
    pytest.importorskip("torch")
    import transformers

    written(tmp_path / "out", world)
    heads = {
        "AutoModelForPreTraining": (),
        "AutoModelForMaskedLM": ("bert.pooler", "cls.seq_relationship"),
    }
    for name, left_out in (heads | {"AutoModel": ("cls.",)}).items():
        loader = getattr(transformers, name)
        model, info = loader.from_pretrained(tmp_path / "out", output_loading_info=True)
        unexpected = [
            key for key in info.pop("unexpected_keys") if not key.startswith(left_out or "-")
        ]
        assert not unexpected and not any(info.values()), name
        assert model.config.hidden_size == 32


@pytest.mark.full
def test_sentence_transformers_encodes(tmp_path, world):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    written(tmp_path / "out", world)
    vectors = sentence_transformers.SentenceTransformer(str(tmp_path / "out")).encode(
        ["a fox", "b"]
    )
    assert vectors.shape == (2, 32) and np.isfinite(vectors).all()

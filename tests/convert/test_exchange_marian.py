"""The Transformer as MarianMTModel: exported, imported, refused, and, with PyTorch, opened by transformers."""

import os
import re
import subprocess
import sys
from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import transformers
from kits import external_models
from kits import pairs_of_texts as kit
from kits.external_models import read_json
from kits.malformed_inputs import refused_import
from kits.runs import SIZES, make_run, save
from kits.small import small_config
from kits.texts import PROSE
from safetensors.numpy import load_file, save_file

from bert_jax import config as configs
from bert_jax.cli import main
from bert_jax.commands import export as exporting
from bert_jax.convert import (
    external_model,
    init_from,
    marian,
    open_model,
    pretrained_tokenizer,
    tokenizer_files,
)
from bert_jax.convert.names import by_path
from bert_jax.errors import BadInput
from bert_jax.inference import predict
from bert_jax.layers import decoding
from bert_jax.objectives import base
from bert_jax.parallel.cluster import Cluster
from bert_jax.tokenizers import tokenizer as tokenizers
from bert_jax.tokenizers.special_tokens import parse_frame

KEYS = (
    "model.name=transformer",
    "objective.name=translation",
    "task.name=translation",
    "task.max_pieces=20",
    "task.extra_pieces=9",
    "task.metrics=()",
    "model.layers=2",
    "model.decoder_layers=3",
    "model.feed_forward=48",
)
WEIGHTS = "model.safetensors"
TEXT = "the quick brown fox jumps over the lazy dog"


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """(run as make_run returns it, exported directory)"""
    directory = tmp_path_factory.mktemp("exported")
    run = make_run(directory / "run", *KEYS, kind="byte_bpe")
    export(directory / "run", directory / "out")
    return run, directory / "out"


def export(run, output) -> None:
    assert main(["export", "--model", str(run), "--output", str(output)]) == 0


def assert_same_params(actual, expected, vocabulary) -> None:
    """Asserts the same bits; rows that pad the vocabulary apart."""
    actual, expected = by_path(actual), by_path(expected)
    assert actual.keys() == expected.keys()
    for path, array in expected.items():
        end = vocabulary.size if path.endswith("/words") else None
        np.testing.assert_array_equal(actual[path][:end], array[:end], err_msg=path)


# --- Export ---------------------------------------------------------------------------------------


def test_settings_are_those_of_marian(exported):
    (config, vocabulary, *_), directory = exported
    values = read_json(directory / "config.json")
    expected = {"architectures": ["MarianMTModel"], "model_type": "marian", "d_model": 32}
    expected |= {"encoder_layers": 2, "decoder_layers": 3, "activation_function": "relu"}
    expected |= {"encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "scale_embedding": True}
    expected |= {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "dropout": 0.1}
    expected |= {"forced_eos_token_id": None, "vocab_size": vocabulary.size, "init_std": 0.06}
    special = {"decoder_start_token_id": 2, "eos_token_id": 3, "pad_token_id": 0}
    assert values == values | expected | special
    searches = {"num_beams": 4, "length_penalty": 0.6, "early_stopping": "never"}
    generation = read_json(directory / "generation_config.json")
    lengths = {"max_length": config.model.max_length + 1, "bert_jax_extra_pieces": 9}
    assert generation == special | searches | lengths
    card = (directory / "README.md").read_text()
    for part in ("pipeline_tag: translation", "bert-jax pretrain", "parts: network, decoder"):
        assert part in card, part


def test_hidden_states_have_all_sines_first(exported):
    """The names and the order are spelled out here."""
    (*_, params), directory = exported
    tensors = load_file(directory / WEIGHTS)
    order = [*range(0, 32, 2), *range(1, 32, 2)]
    block = jax.device_get(params)["network"]["decoder"]["blocks_2"]
    there = "model.decoder.layers.2"
    for name, array in {
        "encoder_attn.q_proj.weight": block["context"]["query"]["kernel"][order].T,
        "encoder_attn.q_proj.bias": block["context"]["query"]["bias"],
        "encoder_attn.out_proj.weight": block["context"]["out"]["kernel"][:, order].T,
        "encoder_attn.out_proj.bias": block["context"]["out"]["bias"][order],
        "fc1.weight": block["feed_forward"]["up"]["kernel"][order].T,
        "fc2.bias": block["feed_forward"]["down"]["bias"][order],
        "final_layer_norm.weight": block["feed_forward_norm"]["scale"][order],
    }.items():
        np.testing.assert_array_equal(tensors[f"{there}.{name}"], array, err_msg=name)


@pytest.mark.parametrize("key, value", [("model.norm", "pre"), ("model.epsilon", 1e-6)])
def test_what_marian_lacks_is_not_exported(key, value):
    run = SimpleNamespace(config=small_config(*KEYS, f"{key}={value}"))
    with pytest.raises(BadInput, match=f"run: {key}={value}.* has only"):
        exporting.check_run(run, "run", "huggingface")


@pytest.mark.parametrize("kind", ["wordpiece", "unigram", "bpe", "byte_bpe"])
def test_tokenizers_end_a_text_and_give_it_back(tmp_path, kind):
    """Ids without [CLS]; imported again, the tokenizer has the same ids."""
    tokenizer = tokenizers.train(kind, PROSE, SIZES[kind], True)
    tokenizer_files.write(
        tmp_path, tokenizer, positions=32, has_segments=False, frame=parse_frame("| | sep")
    )
    external_models.write_config(tmp_path / "config.json", {"model_type": "marian"})
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    (ids,) = tokenizer.encode([TEXT])
    encoded = theirs(TEXT)
    assert encoded == {"input_ids": [*ids, 3], "attention_mask": [1] * (len(ids) + 1)}
    assert theirs(text_target=TEXT)["input_ids"] == [*ids, 3]
    assert theirs.decode([2, *ids, 3, 0, 0], skip_special_tokens=True) == TEXT
    again = pretrained_tokenizer.read(tmp_path, {}, "transformer", marian.MARIAN)
    assert again.encode([TEXT]) == [ids] and again.special == tokenizer.special
    unknown = tokenizer.unk
    for written in ([unknown], [*ids, unknown], [unknown, *ids], [*ids, unknown, unknown, *ids]):
        expected = theirs.decode([2, *written, 3], skip_special_tokens=True)
        for own in (tokenizer, again):
            assert own.decode([2, *written, 3]).strip() == expected.strip()


@pytest.mark.parametrize("kind", ["cls", "none", "BertTokenizer"])
def test_tokenizers_of_another_frame_are_refused(exported, tmp_path, kind):
    """A source has an end token, and no token before it."""
    source = external_models.copy(exported[1], tmp_path / "source")
    if kind == "BertTokenizer":
        tokenizer = tokenizers.train("wordpiece", PROSE, 300, True)
        values = {"tokenizer_class": kind}
        frame = "| | sep"
    else:
        tokenizer = tokenizers.load(exported[1].with_name("run") / "tokenizer")
        values = {}
        frame = "cls | sep | sep" if kind == "cls" else "| |"
    tokenizer_files.write(source, tokenizer, 32, has_segments=False, frame=parse_frame(frame))
    settings = read_json(source / "tokenizer_config.json") | values
    external_models.write_config(source / "tokenizer_config.json", settings)
    assert "frames a text as" in refused_import(source)


# --- Import ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("keys, limit", [([], 9), (["task.extra_pieces=0"], 0)])
def test_an_import_with_a_config_has_the_limit_of_translations(exported, keys, limit):
    source = open_model.read_source(exported[1])
    config = external_model.to_config(
        source, configs.load("translate", ["phases.main.length=32", "task.max_pieces=20"]), keys
    )
    assert config.task.extra_pieces == limit


def test_an_export_is_imported_and_exported_again(exported, tmp_path):
    (_, vocabulary, _, params), directory = exported
    paths = "--source", str(directory), "--workdir", str(tmp_path / "run")
    assert main(["import", *paths]) == 0
    model = open_model.open_model(tmp_path / "run")
    assert model.config.objective.name == model.config.task.name == "translation"
    assert model.info["fresh"] == model.info["imported"]["unused"] == []
    assert model.config.task.extra_pieces == 9
    assert_same_params(model.params, params, vocabulary)
    export(tmp_path / "run", tmp_path / "out")
    for name in (WEIGHTS, "config.json", "generation_config.json"):
        assert (tmp_path / "out" / name).read_bytes() == (directory / name).read_bytes(), name


@pytest.mark.parametrize("form", ["bare", "copies"])
def test_files_of_transformers_are_read(exported, tmp_path, form):
    """A model without its beginning, and one with copies of the word embeddings and the bias of the logits."""
    (_, vocabulary, _, params), directory = exported
    source = external_models.copy(directory, tmp_path / "source")
    tensors = load_file(source / WEIGHTS)
    if form == "bare":
        tensors = {name.removeprefix("model."): array for name, array in tensors.items()}
    else:
        words = tensors.pop("model.shared.weight")
        tensors |= dict.fromkeys(("model.decoder.embed_tokens.weight", "lm_head.weight"), words)
        tensors["final_logits_bias"] = np.zeros((1, vocabulary.size), np.float32)
    save_file(tensors, source / WEIGHTS)
    assert_same_params(open_model.open_model(source).params, params, vocabulary)


def test_a_run_starts_from_an_export(exported):
    (config, vocabulary, _, params), directory = exported
    config = config.copy_and_resolve_references()
    config.init_from = str(directory)
    config.tokenizer.path = str(directory / "tokenizer.json")
    assert_same_params(init_from.read(config, Cluster()).arrays, params, vocabulary)


@pytest.mark.slow
def test_an_export_translates_as_the_run(exported):
    texts = [TEXT, "the dog", ""]
    run = exported[1].with_name("run")
    (ours, _), (theirs, _) = (predict.predict(place, texts) for place in (run, exported[1]))
    for result, expected in zip(theirs, ours, strict=True):
        assert result["prediction"] == expected["prediction"]
    assert theirs[0]["prediction"] and not theirs[2]["prediction"]


OTHERS = [
    ("activation_function", "swish"),
    ("scale_embedding", False),
    ("scale_embedding", None),
    ("share_encoder_decoder_embeddings", False),
    ("decoder_attention_heads", 8),
    ("decoder_ffn_dim", 24),
    ("decoder_vocab_size", 7),
    ("decoder_layers", None),
    ("decoder_start_token_id", 0),
    ("eos_token_id", 0),
    ("pad_token_id", None),
]


@pytest.mark.parametrize("key, value", OTHERS)
def test_other_models_are_refused(exported, tmp_path, key, value):
    source = external_models.copy(exported[1], tmp_path / "source")
    values = read_json(source / "config.json") | {key: value}
    external_models.write_config(source / "config.json", values)
    assert f"config.json: {key} is" in refused_import(source)


@pytest.mark.parametrize(
    "name, shape",
    [
        ("final_logits_bias", (1, 300)),
        ("lm_head.weight", (300, 32)),
        ("model.decoder.embed_tokens.weight", (300, 32)),
        ("model.encoder.embed_positions.weight", (32, 32)),
    ],
)
def test_other_tensors_are_refused(exported, tmp_path, name, shape):
    source = external_models.copy(exported[1], tmp_path / "source")
    tensors = load_file(source / WEIGHTS)
    save_file(tensors | {name: np.full(shape, 0.5, np.float32)}, source / WEIGHTS)
    assert name in refused_import(source)


def test_files_of_marian_are_refused(exported, tmp_path):
    """Two SentencePiece models and a vocabulary, without a tokenizer.json."""
    source = external_models.copy(exported[1], tmp_path / "source")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (source / name).unlink()
    assert "MarianTokenizer" in refused_import(source)


# --- With PyTorch ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    """(our model, theirs) of an export of a model that has learned a little.

    Theirs has exactly the tensors of the file.
    """
    pytest.importorskip("torch")
    directory = tmp_path_factory.mktemp("opened")
    config, vocabulary, _, params = make_run(directory / "run", *KEYS, kind="byte_bpe")
    save(directory / "run", 8, learn(base.make(config, vocabulary), params, vocabulary.size))
    export(directory / "run", directory / "out")
    opening = transformers.AutoModelForSeq2SeqLM.from_pretrained
    theirs, info = opening(directory / "out", output_loading_info=True)
    assert not any(info.values()) and type(theirs).__name__ == "MarianMTModel"
    return open_model.open_model(directory / "out", ["dtype=float32"]), theirs.eval()


def draw_pairs(size: int, rows: int = 12) -> dict:
    """Returns a batch of one random pair in a row; texts have 1 to 12 tokens, [SEP] included."""
    draw = np.random.default_rng(1)
    pairs = []
    for number in range(rows):
        source, target = draw.integers(kit.FIRST, size, (2, number + 1))
        source[-1] = target[-1] = kit.END
        pairs.append((source, np.append(kit.BEGIN, target)))
    return kit.make_batch(pairs, packed=1, length=rows + 1)


def learn(objective, params, size: int):
    """Returns the parameters after steps that suffice for other translations than one repeated token."""
    batch = draw_pairs(size)
    optimizer = optax.adam(3e-3)

    def advance(_, state):
        params, moments = state
        totals = objective.weights(batch)

        def loss(params):
            return objective.loss(params, batch, totals, jnp.uint32(0), train=False)[0]

        updates, moments = optimizer.update(jax.grad(loss)(params), moments)
        return optax.apply_updates(params, updates), moments

    state = params, optimizer.init(params)
    return jax.jit(partial(jax.lax.fori_loop, 0, 30, advance))(state)[0]


def inputs_of(batch: dict) -> dict:
    import torch

    arrays = {"input_ids": batch["tokens"], "attention_mask": batch["sequence_ids"] > 0}
    return {name: torch.tensor(array).long() for name, array in arrays.items()}


@pytest.mark.full
def test_logits_are_those_of_transformers(opened):
    import torch

    ours, theirs = opened
    batch = draw_pairs(ours.vocabulary.size)
    call = jax.jit(ours.objective.module.apply)
    logits = call({"params": ours.params}, batch, None)["target_logits"]
    with torch.no_grad():
        target = torch.tensor(batch["target_tokens"]).long()
        expected = theirs(**inputs_of(batch), decoder_input_ids=target).logits.numpy()
    is_real = batch["target_sequence_ids"] > 0
    logits = np.asarray(logits)[is_real, : ours.vocabulary.size]
    np.testing.assert_allclose(logits, expected[is_real], atol=2e-5)


@pytest.mark.full
@pytest.mark.parametrize("keys", [{"num_beams": 1}, {}, {"length_penalty": 1.0}])
def test_translations_are_those_of_generate(opened, keys):
    """Token by token, up to 12 tokens with [SEP]; by default as generation_config.json says."""
    ours, theirs = opened
    batch = draw_pairs(ours.vocabulary.size)
    length = 12
    expected = theirs.generate(**inputs_of(batch), max_length=1 + length, **keys).numpy()[:, 1:]
    search = decoding.Search(4, keys.get("length_penalty", 0.6), "transformers")

    def decode(params):
        call = partial(ours.objective.module.apply, {"params": params})
        cache = call(batch, search.beams * length, method="start")
        step = partial(call, method="step")
        first = np.full(len(batch["tokens"]), kit.BEGIN)
        stop = decoding.Stop(kit.END, length)
        if "num_beams" in keys:
            return decoding.greedy(step, cache, first, stop)
        return decoding.beam(step, cache, first, stop, search)

    decoded = jax.device_get(jax.jit(decode)(ours.params))
    for tokens, (size, *_), row in zip(decoded.tokens, decoded.lengths, expected, strict=True):
        # Rows are filled with [PAD] here, and perhaps with [SEP] there.
        np.testing.assert_array_equal(tokens[0, :size], row[:size])
        assert row[size - 1] == kit.END or size == length
    assert len(np.unique(decoded.lengths[:, 0])) > 5 and len(np.unique(expected)) > 20


@pytest.mark.full
def test_what_transformers_saves_is_read(exported, tmp_path):
    pytest.importorskip("torch")
    (_, vocabulary, _, params), directory = exported
    for kind in (transformers.AutoModelForSeq2SeqLM, transformers.AutoTokenizer):
        kind.from_pretrained(directory).save_pretrained(tmp_path)
    assert_same_params(open_model.open_model(tmp_path).params, params, vocabulary)


@pytest.mark.full
@pytest.mark.parametrize("kind", ["bpe", "byte_bpe"])
def test_the_code_in_the_card_runs_without_warnings(tmp_path, kind):
    pytest.importorskip("torch")
    make_run(tmp_path / "run", *KEYS, kind=kind)
    export(tmp_path / "run", tmp_path / "out")
    card = (tmp_path / "out/README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    command = [sys.executable, "-W", "error", "-c", code]
    quiet = os.environ | {"HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    process = subprocess.run(command, cwd=tmp_path, env=quiet, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    assert process.stdout.startswith("['") and not process.stderr

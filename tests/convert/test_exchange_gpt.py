"""GPT-2 and GPT as GPT2LMHeadModel and OpenAIGPTLMHeadModel: exported, imported, refused, and, with PyTorch, logits,
losses and gradients beside those of transformers."""

import os
import re
import subprocess
import sys
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from kits import external_models, vocabularies
from kits.external_models import assert_same_params, read_json
from kits.malformed_inputs import refused_import
from kits.runs import make_run
from kits.small import small_config
from kits.texts import PROSE
from safetensors.numpy import load_file, save_file

from bert_jax import config as configs
from bert_jax.cli import main
from bert_jax.commands import export as exporting
from bert_jax.convert import init_from, names, open_model, settings
from bert_jax.errors import BadInput
from bert_jax.parallel.cluster import Cluster
from bert_jax.tokenizers import huggingface
from bert_jax.tokenizers import tokenizer as tokenizers
from bert_jax.tokenizers.special_tokens import TEXT_END

CAUSAL = ("objective.name=causal_lm", "task.name=token_blocks")
KEYS = ("model.name=gpt", *CAUSAL, "model.layers=2", "model.initializer=0.03")
DROPOUTS = ("model.dropout=0.2", "model.attention_dropout=0.3")
NORMS = {"gpt2": "pre", "openai-gpt": "post"}
# {model_type: (words, positions)}
EMBEDDINGS = {"gpt2": ("wte", "wpe"), "openai-gpt": ("tokens_embed", "positions_embed")}
WEIGHTS = "model.safetensors"


@pytest.fixture(scope="module", params=NORMS)
def exported(request, tmp_path_factory):
    """(run as make_run returns it, exported directory). GPT-2 has a vocabulary as the published one, the other has
    another token that begins texts."""
    directory = tmp_path_factory.mktemp("exported")
    words = tokenizers.train("byte_bpe", PROSE, 300, True)
    words = words.append(["<s>"], words.special | {"bos": words.size})
    if request.param == "gpt2":
        words = huggingface.from_library(vocabularies.gpt2_like(), "tokenizer.json", {})
        assert set(words.spellings.values()) == {TEXT_END}
    keys = *KEYS, *DROPOUTS, f"model.norm={NORMS[request.param]}"
    run = make_run(directory / "run", *keys, words=words)
    export(directory / "run", directory / "out")
    return run, directory / "out"


def export(run, output) -> None:
    assert main(["export", "--model", str(run), "--output", str(output)]) == 0


# --- Export ---------------------------------------------------------------------------------------


def test_names_and_layouts_are_those_of_transformers(exported):
    """They are spelled out here."""
    (_, vocabulary, _, params), directory = exported
    tensors = load_file(directory / WEIGHTS)
    network = jax.device_get(params)["network"]
    words, positions = EMBEDDINGS[read_json(directory / "config.json")["model_type"]]
    block, attention = network["blocks_1"], network["blocks_1"]["attention"]
    joint = [attention[name] for name in ("query", "key", "value")]
    expected = {
        f"{words}.weight": network["embedder"]["words"][: vocabulary.size],
        f"{positions}.weight": network["embedder"]["positions"],
        "h.1.attn.c_attn.weight": np.concatenate([dense["kernel"] for dense in joint], axis=1),
        "h.1.attn.c_attn.bias": np.concatenate([dense["bias"] for dense in joint]),
        "h.1.attn.c_proj.weight": attention["out"]["kernel"],
        "h.1.ln_1.weight": block["attention_norm"]["scale"],
        "h.1.ln_2.bias": block["feed_forward_norm"]["bias"],
        "h.1.mlp.c_fc.weight": block["feed_forward"]["up"]["kernel"],
        "h.1.mlp.c_proj.bias": block["feed_forward"]["down"]["bias"],
    }
    if words == "wte":
        expected["ln_f.weight"] = network["final_norm"]["scale"]
    for name, array in expected.items():
        np.testing.assert_array_equal(tensors[f"transformer.{name}"], array, err_msg=name)
    assert len(tensors) == 2 + 2 * 12 + 2 * (words == "wte")


def test_settings_and_card_are_those_of_the_run(exported):
    (config, vocabulary, tokenizer, _), directory = exported
    values = read_json(directory / "config.json")
    expected = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32, "n_ctx": 32}
    expected |= {"resid_pdrop": 0.2, "embd_pdrop": 0.2, "attn_pdrop": 0.3}
    expected |= {"layer_norm_epsilon": 1e-5, "initializer_range": 0.03}
    expected |= {"bos_token_id": vocabulary.begin, "eos_token_id": vocabulary.sep}
    if values["model_type"] == "gpt2":
        begin, end, title = TEXT_END, TEXT_END, "A GPT-2 of 2 layers"
        expected |= {"activation_function": "gelu_new", "n_inner": 128, "pad_token_id": None}
        expected |= {"architectures": ["GPT2LMHeadModel"], "scale_attn_weights": True}
    else:
        begin, end, title = "<s>", "[SEP]", "A GPT of 2 layers"
        expected |= {"afn": "gelu", "pad_token_id": 0, "architectures": ["OpenAIGPTLMHeadModel"]}
    assert values == values | expected
    generation = read_json(directory / "generation_config.json")
    assert generation == generation | {"eos_token_id": vocabulary.sep, "max_length": 32}
    assert tokenizer.pieces[generation["bos_token_id"]] == begin
    words = read_json(directory / "tokenizer_config.json")
    expected = {"bos_token": begin, "eos_token": end, "model_max_length": 32}
    assert words == words | expected
    card = (directory / "README.md").read_text()
    for part in ("pipeline_tag: text-generation", "parts: network", title):
        assert part in card, part


def test_the_tokenizer_adds_nothing_and_gives_a_text_back(exported):
    import transformers

    (_, _, tokenizer, _), directory = exported
    theirs = transformers.AutoTokenizer.from_pretrained(directory)
    for text in ("the quick brown fox", "fox\n  jumps over"):
        (ids,) = tokenizer.encode([text])
        assert theirs(text) == {"input_ids": ids, "attention_mask": [1] * len(ids)}
        assert theirs.decode([*ids, theirs.eos_token_id], skip_special_tokens=True) == text


@pytest.mark.parametrize(
    "keys",
    [
        ("model.name=gpt", "model.positions=rotary"),
        ("model.name=gpt", "model.norm=post", "model.activation=gelu"),
        ("model.name=gpt", "model.norm=post", "model.feed_forward=48"),
    ],
)
def test_what_transformers_lacks_is_not_exported(keys):
    run = SimpleNamespace(config=small_config(*CAUSAL, *keys))
    with pytest.raises(BadInput, match=f"run: {keys[-1]}: --format huggingface has only"):
        exporting.check_run(run, "run", "huggingface")


# --- Import ---------------------------------------------------------------------------------------


def test_an_export_is_imported_and_exported_again(exported, tmp_path):
    (config, vocabulary, _, params), directory = exported
    paths = "--source", str(directory), "--workdir", str(tmp_path / "run")
    assert main(["import", *paths]) == 0
    model = open_model.open_model(tmp_path / "run")
    assert (model.config.objective.name, model.config.task.name) == ("causal_lm", "token_blocks")
    assert model.config.corpus.sentences == "none"
    assert model.info["fresh"] == model.info["imported"]["unused"] == []
    assert_same_params(model.params, params, vocabulary)
    assert model.vocabulary == vocabulary
    export(tmp_path / "run", tmp_path / "out")
    for name in (WEIGHTS, "config.json", "generation_config.json", "tokenizer_config.json"):
        assert (tmp_path / "out" / name).read_bytes() == (directory / name).read_bytes(), name


def test_older_files_and_other_heads_are_read(exported, tmp_path):
    """Without the beginning of names, with buffers, the output matrix, and heads that are not read."""
    (_, vocabulary, _, params), directory = exported
    source = external_models.copy(directory, tmp_path / "source")
    values = read_json(source / "config.json")
    for key in ("n_ctx", "n_inner", "activation_function", "afn"):
        values.pop(key, None)
    external_models.write_config(source / "config.json", values)
    words, _ = EMBEDDINGS[values["model_type"]]
    tensors = load_file(source / WEIGHTS)
    bare = {name.removeprefix("transformer."): array for name, array in tensors.items()}
    bare["h.0.attn.bias"] = np.tril(np.ones((1, 1, 32, 32), np.uint8))
    bare["lm_head.weight"] = bare[f"{words}.weight"]
    bare["score.weight"] = np.ones((2, 32), np.float32)
    if words == "wte":
        bare["h.0.attn.masked_bias"] = np.array(-1e4, np.float32)
    else:
        bare["position_ids"] = np.arange(32)
    save_file(bare, source / WEIGHTS)
    assert_same_params(open_model.open_model(source).params, params, vocabulary)


def test_a_run_starts_from_an_export(exported, tmp_path):
    """Also if its class of tokenizers, which has the same rules, takes only pieces and merges from tokenizer.json."""
    (config, vocabulary, _, params), directory = exported
    if read_json(directory / "config.json")["model_type"] == "gpt2":
        directory = external_models.copy(directory, tmp_path / "source")
        values = {"tokenizer_class": "GPT2Tokenizer"}
        external_models.write_config(directory / "tokenizer_config.json", values)
    config = config.copy_and_resolve_references()
    config.init_from = str(directory)
    config.tokenizer.path = str(directory / "tokenizer.json")
    assert_same_params(init_from.read(config, Cluster()).arrays, params, vocabulary)
    config.model.norm = "post" if config.model.norm == "pre" else "pre"
    with pytest.raises(BadInput, match="model.norm"):
        init_from.read(config, Cluster())


def test_a_run_and_its_export_do_not_differ(exported):
    run, export = (
        open_model.open_model(directory)
        for directory in (exported[1].with_name("run"), exported[1])
    )
    changed = configs.differences(run.config, export.config)
    assert not [key for key in changed if key.startswith(("model.", "objective."))]
    assert run.tokenizer.pieces == export.tokenizer.pieces
    assert_same_params(export.params, run.params, run.vocabulary)


OTHERS = [
    ("n_embd", None),
    ("n_positions", 0),
    ("embd_pdrop", 0.2),
    ("tie_word_embeddings", False),
    ("layer_norm_epsilon", "1e-5"),
]
GPT2_OTHERS = [
    ("activation_function", "silu"),
    ("n_inner", -1),
    ("scale_attn_weights", False),
    ("scale_attn_by_inverse_layer_idx", True),
    ("add_cross_attention", True),
]
CASES = [("gpt2", *case) for case in (*OTHERS, *GPT2_OTHERS)]
CASES += [("openai-gpt", *case) for case in (*OTHERS, ("afn", "silu"))]


@pytest.mark.parametrize(("kind", "key", "value"), CASES)
def test_other_models_are_refused(kind, key, value):
    values = {"model_type": kind, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32}
    assert settings.from_huggingface(values, "config.json")[0]["norm"] == NORMS[kind]
    with pytest.raises(BadInput, match=f"config.json: {key} is {value!r}"):
        settings.from_huggingface(values | {key: value}, "config.json")


@pytest.mark.parametrize("name", ["lm_head.weight", "transformer.h.0.crossattention.c_attn.weight"])
def test_other_tensors_are_refused(exported, tmp_path, name):
    (_, vocabulary, *_), directory = exported
    source = external_models.copy(directory, tmp_path / "source")
    tensors = load_file(source / WEIGHTS)
    save_file(tensors | {name: np.ones((vocabulary.size, 32), np.float32)}, source / WEIGHTS)
    assert name in refused_import(source)


# --- With PyTorch ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def opened(exported, tmp_path_factory):
    """(our model, theirs) of random weights that transformers saved."""
    torch = pytest.importorskip("torch")
    import transformers

    *_, directory = exported
    source = external_models.copy(directory, tmp_path_factory.mktemp("opened") / "source")
    for name in (WEIGHTS, "config.json", "generation_config.json"):
        (source / name).unlink()
    config = transformers.AutoConfig.from_pretrained(directory)
    torch.manual_seed(0)
    theirs = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    theirs.save_pretrained(source)
    return open_model.open_model(source, ["dtype=float32"]), theirs.double().eval()


def make_batch(size: int, rows: int = 9, length: int = 32) -> dict:
    """Returns rows of 2 to `length` random tokens."""
    draw = np.random.default_rng(0)
    lengths = np.linspace(2, length, rows).astype(int)[:, None]
    places = np.arange(length)
    is_real = places < lengths
    ids = is_real.astype(np.int32)
    return dict(
        tokens=(draw.integers(size, size=ids.shape) * ids).astype(np.int32),
        segments=np.zeros_like(ids),
        positions=places.astype(np.int32) * ids,
        sequence_ids=ids,
        cls_positions=np.zeros((rows, 1), np.int32),
        rows=np.arange(rows, dtype=np.int32),
        row_weights=np.ones(rows, np.float32),
        next_weights=(places < lengths - 1).astype(np.float32),
    )


@pytest.mark.full
def test_logits_loss_and_gradients_are_those_of_transformers(opened):
    """Theirs are computed in float64."""
    import torch

    ours, theirs = opened
    size = ours.vocabulary.size
    batch = make_batch(size)
    is_real = batch["sequence_ids"] > 0
    is_counted = batch["next_weights"][:, :-1] > 0
    inputs = {"input_ids": batch["tokens"], "attention_mask": batch["sequence_ids"]}
    inputs = {name: torch.tensor(array).long() for name, array in inputs.items()}
    expected = theirs(**inputs).logits
    targets = inputs["input_ids"][:, 1:][is_counted]
    expected_loss = torch.nn.functional.cross_entropy(expected[:, :-1][is_counted], targets)
    expected_loss.backward()

    def compute(params):
        totals = ours.objective.weights(batch)
        loss, _ = ours.objective.loss(params, batch, totals, np.uint32(0), train=False)
        return loss

    logits = jax.jit(ours.objective.outputs)(ours.params, batch)["lm_logits"]
    logits = np.asarray(logits)[is_real, :size]
    difference = np.abs(logits - expected.detach().numpy()[is_real]).max()
    loss, gradient = jax.device_get(jax.jit(jax.value_and_grad(compute))(ours.params))
    relative_loss = abs(loss / float(expected_loss.detach()) - 1)
    _, gradients = names.tensors(gradient, ours.config, size, "huggingface")
    differences = {}
    for name, parameter in theirs.named_parameters():
        array = parameter.grad.numpy()
        scale = max(np.abs(array).max(), 1e-3)
        differences[name] = np.abs(gradients.pop(name) - array).max() / scale
    print(f"logits {difference:.1e} loss {relative_loss:.1e} {max(differences.values()):.1e}")
    assert difference < 2e-5 and relative_loss < 1e-6
    assert max(differences.values()) < 1e-4 and not gradients


@pytest.mark.full
def test_the_code_in_the_card_runs_without_warnings(exported):
    pytest.importorskip("torch")
    *_, directory = exported
    card = (directory / "README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    command = [sys.executable, "-W", "error", "-c", code]
    quiet = os.environ | {"HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    process = subprocess.run(
        command, cwd=directory.parent, env=quiet, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr
    assert "The answer is in" in process.stdout
    print(process.stderr)

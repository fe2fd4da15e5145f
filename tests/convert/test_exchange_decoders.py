"""BERT and ModernBERT with causal attention as BertLMHeadModel with `is_decoder` and ModernBertDecoderForCausalLM."""

import jax
import numpy as np
import pytest
from kits import external_models
from kits.external_models import assert_same_params, read_json
from kits.malformed_inputs import refused_import
from kits.runs import make_run
from kits.small import MODERN
from safetensors.numpy import load_file

from bert_jax.cli import main
from bert_jax.convert import open_model
from bert_jax.tokenizers import tokenizer as tokenizers

CAUSAL = ("objective.name=causal_lm", "task.name=token_blocks", "model.initializer=0.03")
KEYS = {"bert": ("model.layers=2",), "modernbert": MODERN}
WEIGHTS = "model.safetensors"


@pytest.fixture(scope="module", params=KEYS)
def exported(request, tmp_path_factory):
    """(run as make_run returns it, exported directory)."""
    directory = tmp_path_factory.mktemp("exported")
    run = make_run(directory / "run", *KEYS[request.param], *CAUSAL)
    assert main(["export", "--model", f"{directory}/run", "--output", f"{directory}/out"]) == 0
    return run, directory / "out"


def test_settings_and_names_are_those_of_transformers(exported):
    (config, vocabulary, _, params), directory = exported
    values = read_json(directory / "config.json")
    tensors = load_file(directory / WEIGHTS)
    head = jax.device_get(params)["lm"]
    if config.model.name == "bert":
        expected = {"architectures": ["BertLMHeadModel"], "is_decoder": True, "model_type": "bert"}
        prefix, bias = "cls.predictions.transform.dense", "cls.predictions.bias"
    else:
        expected = {"architectures": ["ModernBertDecoderForCausalLM"]}
        # Here a token sees half of the window besides itself, there itself among them.
        expected |= {"model_type": "modernbert-decoder", "local_attention": 8 + 2}
        prefix, bias = "lm_head.dense", "decoder.bias"
        query = jax.device_get(params)["network"]["blocks_1"]["attention"]["query"]["kernel"]
        np.testing.assert_array_equal(tensors["model.layers.1.attn.q_proj.weight"], query.T)
    assert values == values | expected
    np.testing.assert_array_equal(tensors[f"{prefix}.weight"], head["dense"]["kernel"].T)
    np.testing.assert_array_equal(tensors[bias], head["bias"][: vocabulary.size])
    assert "pipeline_tag: text-generation" in (directory / "README.md").read_text()


def test_an_export_is_imported_and_exported_again(exported, tmp_path):
    (config, vocabulary, _, params), directory = exported
    assert main(["import", "--source", str(directory), "--workdir", f"{tmp_path}/run"]) == 0
    model = open_model.open_model(tmp_path / "run")
    assert (model.config.objective.name, model.config.task.name) == ("causal_lm", "token_blocks")
    assert model.info["fresh"] == model.info["imported"]["unused"] == []
    assert_same_params(model.params, params, vocabulary)
    output = tmp_path / "out"
    assert main(["export", "--model", f"{tmp_path}/run", "--output", str(output)]) == 0
    for name in (WEIGHTS, "config.json", "generation_config.json"):
        assert (output / name).read_bytes() == (directory / name).read_bytes(), name


@pytest.mark.parametrize("name", [pytest.param("bert", marks=pytest.mark.full), "modernbert"])
def test_an_encoder_starts_from_a_decoder_and_back(name, tmp_path):
    """The body is that of the other one, and the head over the vocabulary is new."""
    words = make_run(tmp_path / "decoder", *KEYS[name], *CAUSAL)[2]
    make_run(tmp_path / "encoder", *KEYS[name], "task.pair_task=none", words=words)
    for source, target in (("decoder", "encoder"), ("encoder", "decoder")):
        output = tmp_path / f"{source}_exported"
        assert main(["export", "--model", f"{tmp_path}/{source}", "--output", str(output)]) == 0
        keys = CAUSAL[:2]
        if target == "encoder":
            keys = ("objective.name=mlm", "task.name=packed_documents", "corpus.sentences=auto")
        overrides = [f"--config.{key}" for key in keys]
        workdir = tmp_path / f"{target}_imported"
        command = ["import", "--source", str(output), "--workdir", str(workdir), *overrides]
        assert main(command) == 0
        model = open_model.open_model(workdir)
        body = open_model.open_model(tmp_path / source).params["network"]
        assert_same_params(model.params["network"], body, model.vocabulary)
        assert model.info["fresh"][-1] == {"encoder": "mlm", "decoder": "lm"}[target]


def test_a_window_of_one_token_is_refused(tmp_path):
    make_run(tmp_path / "decoder", *MODERN, *CAUSAL)
    source = tmp_path / "out"
    assert main(["export", "--model", f"{tmp_path}/decoder", "--output", str(source)]) == 0
    values = read_json(source / "config.json") | {"local_attention": 2}
    external_models.write_config(source / "config.json", values)
    assert "config.model.window=0: " in refused_import(source)


@pytest.mark.full
def test_logits_are_those_of_transformers(exported):
    """Rows are longer than the window."""
    torch = pytest.importorskip("torch")
    import transformers

    (config, vocabulary, *_), directory = exported
    theirs = transformers.AutoModelForCausalLM.from_pretrained(directory).double().eval()
    ours = open_model.open_model(directory, ["dtype=float32"])
    draw = np.random.default_rng(0)
    tokens = draw.integers(vocabulary.size, size=(3, 32)).astype(np.int32)
    ones = np.ones_like(tokens)
    batch = dict(
        tokens=tokens,
        segments=0 * ones,
        positions=np.arange(32, dtype=np.int32) * ones,
        sequence_ids=ones,
        cls_positions=np.zeros((3, 1), np.int32),
        rows=np.arange(3, dtype=np.int32),
        row_weights=np.ones(3, np.float32),
        next_weights=np.ones((3, 32), np.float32),
    )
    with torch.no_grad():
        expected = theirs(input_ids=torch.tensor(tokens).long()).logits.numpy()
    logits = jax.jit(ours.objective.outputs)(ours.params, batch)["lm_logits"]
    actual = np.asarray(logits)[..., : vocabulary.size]
    np.testing.assert_allclose(actual, expected, atol=2e-5)
    words = tokenizers.load(directory.with_name("run") / "tokenizer")
    text = "the quick brown fox"
    library = transformers.AutoTokenizer.from_pretrained(directory)
    assert library(text)["input_ids"] == words.encode([text])[0]

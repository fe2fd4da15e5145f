"""ModernBERT beside transformers' (PyTorch): states, logits, losses and gradients of short and long rows, padded and
packed; directories of transformers 4 and 5; refused settings. Small rows and training: tests/test_golden.py."""

import json

import jax
import numpy as np
import pytest
from kits import external_models, labelled, transformers_bert
from kits.runs import make_run
from kits.small import MODERN
from kits.texts import DIFFICULT
from safetensors.numpy import load_file, save_file

from bert_jax import config as configs
from bert_jax.cli import main
from bert_jax.convert import init_from, open_model, settings
from bert_jax.convert.names import by_path
from bert_jax.errors import BadInput

WHOLE = (*MODERN, "task.pair_task=none", "dtype=float32")
SIZES = dict(hidden_size=32, num_hidden_layers=4, num_attention_heads=4, intermediate_size=48)
CONFIG = SIZES | dict(vocab_size=211, max_position_embeddings=300, local_attention=16)
CONFIG |= dict(model_type="modernbert", pad_token_id=0)
LENGTHS = 1, 300, 37, 120, 5


@pytest.fixture(scope="module")
def compared():
    """Their parameters as ours, a batch of rows of LENGTHS, and their values of it, computed in float64."""
    pytest.importorskip("torch")
    from golden import make_bert

    draw = np.random.default_rng(0)
    model = make_bert.make_model(CONFIG, draw, 0.1).double()
    params = {name: value.detach().numpy() for name, value in model.named_parameters()}
    batch = make_bert.make_batch(CONFIG, draw, LENGTHS, 300)
    return transformers_bert.params_of(params), batch, make_bert.evaluate(model, batch)


@pytest.mark.full
@pytest.mark.parametrize("packed", [False, True])
def test_rows_equal_transformers(compared, packed):
    """Packed in one row, each document has the states and logits that it has alone."""
    params, batch, expected = compared
    real = batch["attention_mask"] > 0
    if packed:
        numbers, positions = np.nonzero(real)
        batch = {name: array[real][None] for name, array in batch.items()}
        batch |= {"attention_mask": 1 + numbers[None], "position_ids": positions[None]}
    theirs = transformers_bert.config_of(CONFIG), transformers_bert.vocabulary_of(CONFIG)
    ours = transformers_bert.evaluate(*theirs, params, transformers_bert.batch_of(batch))
    if packed:
        for name in ("mlm_logits", "hidden_states"):
            padded = np.zeros_like(expected[name])
            padded[..., real, :] = ours[name][..., 0, :, :]
            ours[name] = padded
    differences = transformers_bert.differences(ours, expected, real)
    print({name: f"{difference:.1e}" for name, difference in differences.items()})
    transformers_bert.check(differences, states=2e-5, gradients=1e-4, losses=2e-6)


# --- Directories ----------------------------------------------------------------------------------

OLDER = ("global_attn_every_n_layers", "global_rope_theta", "local_rope_theta")
NEWER = ("layer_types", "rope_parameters")
OTHERS = ("model.full_every=2", "phases.main.rotary_base=5e4", "model.local_rotary_base=9e3")
OTHERS += ("model.pooling=mean", "model.activation=relu", "model.dropout=0.2")


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """(config, tokenizer, exported directory) of a masked LM."""
    directory = tmp_path_factory.mktemp("exported")
    config, _, tokenizer, _ = make_run(directory / "run", *WHOLE, *OTHERS, kind="byte_bpe")
    paths = "--model", str(directory / "run"), "--output", str(directory / "out")
    assert main(["export", *paths]) == 0
    return config, tokenizer, directory / "out"


@pytest.mark.full
@pytest.mark.parametrize(("name", "fresh"), [("ForMaskedLM", []), ("Model", ["head", "mlm"])])
def test_directories_of_transformers_are_read(exported, name, fresh, tmp_path):
    """They have the weights of an export that transformers opened, of all parts or the encoder, bit for bit."""
    pytest.importorskip("torch")
    import transformers

    *_, directory = exported
    source = external_models.copy(directory, tmp_path / "source")
    [(source / file).unlink() for file in ("model.safetensors", "config.json", "training.json")]
    getattr(transformers, f"ModernBert{name}").from_pretrained(directory).save_pretrained(source)
    model, expected = open_model.open_model(source), open_model.open_model(directory).params
    assert model.info["fresh"] == fresh
    expected = by_path(expected)
    for path, array in by_path(model.params).items():
        if not (fresh and path.startswith("mlm/")):
            np.testing.assert_array_equal(array, expected[path], err_msg=path)


@pytest.mark.parametrize("dropped", [OLDER, NEWER])
def test_settings_of_both_versions_are_read(exported, dropped):
    config, _, directory = exported
    values = json.loads((directory / "config.json").read_text())
    kept = {key: value for key, value in values.items() if key not in dropped}
    read, _ = settings.from_huggingface(kept, "config.json")
    trained = configs.at_step(config, 7).model  # which has the base of its phase
    assert read == {key: trained[key] for key in read} and len(kept) < len(values)
    assert configs.load(str(directory / "training.json")).model == config.model != trained


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *((f"{part}_bias", True) for part in ("attention", "mlp", "norm", "classifier")),
        ("decoder_bias", False),
        ("rope_scaling", {"rope_type": "yarn", "factor": 4.0}),
        ("rope_parameters", {"full_attention": {"rope_type": "yarn", "rope_theta": 1e4}}),
        ("layer_types", ["full_attention", "full_attention", *["sliding_attention"] * 2]),
        ("layer_types", 4),
        ("classifier_pooling", "max"),
        ("local_attention", None),
        ("model_type", ["modernbert"]),
    ],
)
def test_other_models_are_refused(exported, key, value):
    values = json.loads((exported[-1] / "config.json").read_text())
    with pytest.raises(BadInput, match=f"config.json: {key}"):
        settings.from_huggingface(values | {key: value}, "config.json")


def test_rows_that_pad_the_vocabulary_keep_their_ids(exported, tmp_path):
    """Imported and exported again, all tensors have the same bits."""
    config, tokenizer, directory = exported
    source, size = external_models.copy(directory, tmp_path / "source"), tokenizer.size + 20
    tensors = load_file(source / "model.safetensors")
    for name in ("model.embeddings.tok_embeddings.weight", "decoder.bias"):
        surplus = np.full((20, *tensors[name].shape[1:]), 0.5, np.float32)
        tensors[name] = np.concatenate([tensors[name], surplus])
    save_file(tensors, source / "model.safetensors", metadata={"format": "pt"})
    values = json.loads((source / "config.json").read_text())
    external_models.write_config(source / "config.json", values | {"vocab_size": size})
    run, out = tmp_path / "run", tmp_path / "out"
    assert main(f"import --source {source} --workdir {run}".split()) == 0
    assert main(f"export --model {run} --output {out}".split()) == 0
    jax.tree.map(np.testing.assert_array_equal, load_file(out / "model.safetensors"), tensors)
    model = open_model.open_model(out)
    assert model.vocabulary.size == size
    assert model.config.model == configs.at_step(config, 7).model
    assert model.tokenizer.pieces[: tokenizer.size] == tokenizer.pieces
    assert model.tokenizer.encode(DIFFICULT) == tokenizer.encode(DIFFICULT)


def test_a_command_does_not_change_the_rotary_base_of_a_phase(tmp_path):
    make_run(tmp_path / "run", *WHOLE)
    with pytest.raises(BadInput, match="phases.main.rotary_base"):
        open_model.open_model(tmp_path / "run", ["phases.main.rotary_base=7.0"])


@pytest.mark.full
def test_a_fine_tuned_model_starts_with_the_head_and_pools_as_the_source(tmp_path):
    keys = (*WHOLE, "model.pooling=mean", "model.max_length=64")
    *_, params = make_run(tmp_path / "start", *keys, words=labelled.tokenizer())
    places = labelled.places(tmp_path / "start", labelled.sentences(tmp_path / "data", 32, 8))
    still = {"optimizer.learning_rate": 0.0, "task.epochs": 1.0}
    labelled.tune(labelled.load("glue:sst2", places, **still), tmp_path / "run")
    model, source = open_model.open_model(tmp_path / "run"), by_path(params)
    assert model.config.model.pooling == "mean" and model.info["fresh"] == ["label"]
    other = model.config.copy_and_resolve_references()
    other.model.pooling = "first"
    init_from.check_settings(other, model.config)  # pretraining does not pool
    for path, array in by_path(model.params).items():
        if not path.startswith("label/"):
            np.testing.assert_array_equal(array, source[path], err_msg=path)

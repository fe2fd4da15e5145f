"""ELECTRA in transformers' format: its discriminator and its generator exported, imported, refused. Loss and gradients:
test_replaced_tokens.py; layers of tasks: test_to_huggingface.py."""

import jax
import numpy as np
import pytest
from kits import external_models
from kits.external_models import assert_same_params, read_json
from kits.malformed_inputs import refused, refused_import
from kits.runs import make_run, run_batch
from kits.small import ELECTRA
from safetensors.numpy import load_file, save_file

from bert_jax.cli import main
from bert_jax.convert import open_model, settings
from bert_jax.convert.names import by_path
from bert_jax.errors import BadInput
from bert_jax.objectives import replaced_tokens

WEIGHTS = "model.safetensors"
PROJECTION = "electra.embeddings_project.weight"


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """(run as make_run returns it, its directory, that of the exported discriminator, and of the generator)."""
    directory = tmp_path_factory.mktemp("exported")
    run = make_run(directory / "run", *ELECTRA)
    assert export(directory / "run", directory / "discriminator") == 0
    assert export(directory / "run", directory / "generator", "--generator") == 0
    return run, directory / "run", directory / "discriminator", directory / "generator"


def export(run, output, *options) -> int:
    return main(["export", "--model", str(run), "--output", str(output), *options])


def test_names_and_settings_are_those_of_transformers(exported):
    """They are spelled out here."""
    (_, vocabulary, _, params), _, *directories = exported
    params = jax.device_get(params)
    network = params["network"]
    common = {"model_type": "electra", "embedding_size": 16, "num_hidden_layers": 2}
    values = read_json(directories[0] / "config.json")
    own = {"architectures": ["ElectraForPreTraining"], "hidden_size": 32, "intermediate_size": 128}
    assert values == values | common | own | {"num_attention_heads": 4, "hidden_act": "gelu"}
    tensors = load_file(directories[0] / WEIGHTS)
    for name, array in {
        "electra.embeddings.LayerNorm.weight": network["embedder_norm"]["scale"],
        PROJECTION: network["embedder_dense"]["kernel"].T,
        "electra.encoder.layer.1.attention.self.key.weight": network["blocks_1"]["attention"][
            "key"
        ]["kernel"].T,
        "discriminator_predictions.dense.weight": params["replaced_dense"]["kernel"].T,
        "discriminator_predictions.dense_prediction.bias": params["replaced"]["bias"],
    }.items():
        np.testing.assert_array_equal(tensors[name], array, err_msg=name)
    assert len(tensors) == 7 + 2 * 16 + 4
    card = (directories[0] / "README.md").read_text()
    count = sum(array.size for array in tensors.values())
    assert f"An ELECTRA of 2 layers and width 32 with {count:,} parameters" in card
    assert "the discriminator of a run" in card
    values = read_json(directories[1] / "config.json")
    own = {"architectures": ["ElectraForMaskedLM"], "hidden_size": 8, "intermediate_size": 32}
    assert values == values | common | own | {"num_attention_heads": 1}
    generator = params["generator"]
    shared = tensors
    tensors = load_file(directories[1] / WEIGHTS)
    for name, array in {
        PROJECTION: generator["network"]["embedder_dense"]["kernel"].T,
        "generator_predictions.dense.weight": generator["mlm"]["dense"]["kernel"].T,
        "generator_predictions.LayerNorm.bias": generator["mlm"]["norm"]["bias"],
        "generator_lm_head.bias": generator["mlm"]["bias"][: vocabulary.size],
    }.items():
        np.testing.assert_array_equal(tensors[name], array, err_msg=name)
    card = (directories[1] / "README.md").read_text()
    count = sum(array.size for array in tensors.values())
    assert f"An ELECTRA of 2 layers and width 8 with {count:,} parameters" in card
    assert "the generator of a run" in card and "fill-mask" in card
    names = [name for name in shared if name.startswith("electra.embeddings.")]
    assert len(names) == 5
    for name in names:
        np.testing.assert_array_equal(tensors[name], shared[name], err_msg=name)


def test_an_export_is_imported_and_exported_again(exported, tmp_path):
    """The discriminator with a fresh generator, the generator as a masked LM."""
    run, _, *directories = exported
    expected = run[-1], replaced_tokens.generator_params(run[-1])
    for directory, objective, params in zip(
        directories, ("replaced_tokens", "mlm"), expected, strict=True
    ):
        name = directory.name
        paths = "--source", str(directory), "--workdir", str(tmp_path / name)
        assert main(["import", *paths]) == 0
        model = open_model.open_model(tmp_path / name)
        assert model.config.objective.name == objective
        assert model.info["fresh"] == ["generator"] * (objective != "mlm")
        assert model.info["imported"]["unused"] == []
        own = {
            path: array for path, array in by_path(model.params).items() if "generator" not in path
        }
        theirs = {path: array for path, array in by_path(params).items() if "generator" not in path}
        assert_same_params(own, theirs, run[1])
        assert export(tmp_path / name, tmp_path / f"{name}_again") == 0
        for file in (WEIGHTS, "config.json", "tokenizer.json"):
            again = (tmp_path / f"{name}_again" / file).read_bytes()
            assert again == (directory / file).read_bytes(), file
    paths = "--model", tmp_path / "discriminator", "--output", tmp_path / "x"
    assert "--generator: none is trained" in refused("export", *paths, "--generator")


def test_the_generator_of_a_run_is_the_exported_model(exported):
    (_, vocabulary, _, params), run, _, directory = exported
    batch = run_batch(vocabulary)
    ours = open_model.open_model(run).objective.outputs(params, batch)["mlm_logits"]
    model = open_model.open_model(directory)
    theirs = model.objective.outputs(jax.device_put(model.params), batch)["mlm_logits"]
    pieces = slice(vocabulary.size)
    np.testing.assert_allclose(theirs[..., pieces], ours[..., pieces], atol=1e-5)


def test_embeddings_of_the_width_of_the_states_have_no_projection(tmp_path):
    run = make_run(tmp_path / "run", *ELECTRA, "model.embedding_width=0")
    assert export(tmp_path / "run", tmp_path / "out") == 0
    assert read_json(tmp_path / "out/config.json")["embedding_size"] == 32
    assert PROJECTION not in load_file(tmp_path / "out" / WEIGHTS)
    model = open_model.open_model(tmp_path / "out")
    assert model.config.model.embedding_width == 0
    np.testing.assert_array_equal(model.params["replaced"]["kernel"], run[-1]["replaced"]["kernel"])


def test_a_discriminator_whose_heads_four_does_not_divide_is_imported(tmp_path):
    make_run(tmp_path / "run", *ELECTRA, "model.heads=2", "objective.generator=2")
    assert export(tmp_path / "run", tmp_path / "out") == 0
    model = open_model.open_model(tmp_path / "out")
    assert model.config.objective.generator == 2


def test_a_generator_is_trained_before_it_is_exported(tmp_path):
    make_run(tmp_path / "mlm", "model.name=electra", "task.pair_task=none")
    paths = "--model", tmp_path / "mlm", "--output", tmp_path / "out", "--generator"
    assert "objective.name='mlm'" in refused("export", *paths)


@pytest.mark.parametrize(
    ("key", "value"),
    [("hidden_act", "relu"), ("position_embedding_type", "relative_key"), ("embedding_size", "16")],
)
def test_other_models_are_refused(exported, key, value):
    values = read_json(exported[2] / "config.json")
    with pytest.raises(BadInput, match=f"config.json: {key}"):
        settings.from_huggingface(values | {key: value}, "config.json")


def test_a_missing_projection_is_named(exported, tmp_path):
    source = external_models.copy(exported[2], tmp_path / "source")
    tensors = load_file(source / WEIGHTS)
    del tensors[PROJECTION]
    save_file(tensors, source / WEIGHTS)
    assert f"{PROJECTION} is missing" in refused_import(source)


@pytest.mark.full
@pytest.mark.parametrize("part", ["discriminator", "generator"])
def test_directories_of_transformers_are_read_and_have_the_logits(exported, part, tmp_path):
    torch = pytest.importorskip("torch")
    import transformers

    (_, vocabulary, _, _), _, *directories = exported
    directory = directories[part == "generator"]
    (name,) = read_json(directory / "config.json")["architectures"]
    theirs, info = getattr(transformers, name).from_pretrained(directory, output_loading_info=True)
    assert not any(info.values())
    source = external_models.copy(directory, tmp_path / "source")
    for file in (WEIGHTS, "config.json"):
        (source / file).unlink()
    theirs.save_pretrained(source)
    model = open_model.open_model(source)
    assert model.info["fresh"] == ["generator"] * (part == "discriminator")
    batch = run_batch(vocabulary)
    params = jax.device_put(model.params)
    inputs = {"input_ids": "tokens", "attention_mask": "sequence_ids", "token_type_ids": "segments"}
    inputs = {key: torch.tensor(batch[ours]).long() for key, ours in inputs.items()}
    expected = theirs.eval()(**inputs).logits.detach().numpy()
    if part == "generator":
        logits = model.objective.outputs(params, batch)["mlm_logits"][..., : vocabulary.size]
        positions = batch["masked_positions"][..., None]
        difference = abs(logits - np.take_along_axis(expected, positions, axis=1)).max()
    else:
        logits = model.objective.method(params, "discriminate")(batch)
        difference = abs(logits - expected)[batch["sequence_ids"] > 0].max()
    print(f"{part}: {difference:.1e}")
    assert difference < 2e-5

"""`export`: a complete directory or none, a correct model card, one line for bad input, and uploads to the hub."""

import json
import re
import shutil
import subprocess
import sys
from unittest.mock import create_autospec

import numpy as np
import pytest
from huggingface_hub import HfApi, RepoUrl
from kits.malformed_inputs import leaf, refused
from kits.runs import make_run, save
from kits.small import small_config
from safetensors.numpy import load_file

from bert_jax import config as configs
from bert_jax.cli import main
from bert_jax.commands import export as exporting
from bert_jax.convert import names
from bert_jax.objectives import base
from bert_jax.runs import open_run
from bert_jax.runs.workdir import Workdir

FILES = {"README.md", "config.json", "model.safetensors", "tokenizer.json", "vocab.txt"}
FILES |= {"tokenizer_config.json", "training.json"}


def export(directory, *options) -> str:
    """Exports directory/run to directory/out; returns the model card."""
    paths = ["--workdir", str(directory / "run"), "--output", str(directory / "out")]
    assert main(["export", *paths, *options]) == 0
    return (directory / "out/README.md").read_text()


def test_the_newest_checkpoint_is_exported_bit_for_bit(tmp_path, capsys):
    config, vocabulary, _, params = make_run(tmp_path / "run")
    params["network"]["pooler"]["bias"] = np.arange(32, dtype=np.float32) / 3
    save(tmp_path / "run", 9, params)
    export(tmp_path, "--json", "-")
    values = json.loads(capsys.readouterr().out)
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "out").iterdir()}
    assert set(sizes) == set(values["files"]) == FILES
    assert values["bytes"] == sum(sizes.values()) and values["step"] == 9
    tensors = load_file(tmp_path / "out/model.safetensors")
    assert values["parameters"] == sum(array.size for array in tensors.values())
    for item in names.parameters(config.model):
        array = leaf(params, item.path)
        array = array[: vocabulary.size] if item.padded else array
        array = array.T if "huggingface" in item.transposed else array
        assert np.array_equal(tensors.pop(item.huggingface), array), item
    assert not tensors and {path.name for path in tmp_path.iterdir()} == {"run", "out"}


def test_positions_that_no_row_has_reached_are_told(tmp_path, capsys):
    """At the start of a run, by the export, in the card, and to transformers' tokenizers."""
    for key, *others in (["model.max_length=64"], ["schedule.warmup=50", "phases.main.steps=50"]):
        (warning,) = base.warnings(small_config(key, *others))
        assert key in warning and not base.warnings(small_config())
    make_run(tmp_path / "run", "model.max_length=64")
    assert "up to 64, were never trained" in export(tmp_path)
    assert "32 of its 64 positions" in capsys.readouterr().out
    settings = json.loads((tmp_path / "out/tokenizer_config.json").read_text())
    assert settings["model_max_length"] == 32


def test_positions_that_the_source_of_init_from_has_reached_count(tmp_path):
    """Those of a model of another program are all taken as trained."""
    make_run(tmp_path / "run", "model.max_length=64")
    model = open_run.open_run(Workdir(tmp_path / "run"))
    assert open_run.trained_positions(model) == 32
    for imported, reached in (({}, 64), ({"positions": 48}, 48), ({"positions": 16}, 32)):
        info = model.info | {"imported": imported}
        assert open_run.trained_positions(model._replace(info=info)) == reached


def test_the_model_card_has_the_results_of_the_run(finished, tmp_path):
    """It has no path of this machine."""
    import yaml

    settings, workdir = finished
    (tmp_path / "run").symlink_to(workdir)
    text = export(tmp_path, "--license", "apache-2.0", "--language", "no")
    summary = json.loads((workdir / "summary.json").read_text())
    expected = {"license": "apache-2.0", "language": "no", "library_name": "transformers"}
    head = yaml.safe_load(text.split("---\n")[1])
    assert head | expected | {"pipeline_tag": "fill-mask"} == head
    for part in (
        f"{summary['parameters']:,}",
        f"| mlm_loss_masked | {summary['heldout']['mlm_loss_masked']:.4f} |",
        f"{summary['heldout']['headline']}.",
        "hf upload USER/run out .",
    ):
        assert part in text, part
    training = configs.load(str(tmp_path / "out/training.json"))
    before = configs.load(str(workdir / "config.json"))
    paths = {"corpus.source", "store", "compilation_cache"}
    assert set(configs.differences(before, training)) == paths
    for path in (tmp_path / "out").iterdir():
        assert str(workdir.parent).encode() not in path.read_bytes(), path


@pytest.mark.slow
def test_the_model_card_of_an_average_says_so(tmp_path):
    *_, params = make_run(tmp_path / "run")
    assert "these are the weights of step 7." in export(tmp_path)
    (tmp_path / "out").rename(tmp_path / "before")
    save(tmp_path / "run", 8, params, keep=2)
    text = export(tmp_path, "--config.checkpoint.average=2")
    assert "the mean of 2 checkpoints" in text and "step 8" in text
    assert "the weights of step" not in text


@pytest.mark.slow
def test_the_model_card_of_an_import_names_its_source(tmp_path):
    """Before the first step, the card claims no training, and has only the heads of the source."""
    imported = {"fresh": ["mlm", "pair"], "imported": {"source": "theirs", "format": "google"}}
    *_, params = make_run(tmp_path / "run", step=0, **imported)
    text = export(tmp_path)
    values = json.loads((tmp_path / "out/config.json").read_text())
    assert values["architectures"] == ["BertModel"] and "feature-extraction" in text
    assert "`theirs`" in text and "Pretrained" not in text and "sources" not in text
    (tmp_path / "out").rename(tmp_path / "before")
    save(tmp_path / "run", 1, params)  # one step trains all heads
    text = export(tmp_path)
    values = json.loads((tmp_path / "out/config.json").read_text())
    assert values["architectures"] == ["BertForPreTraining"] and "fill-mask" in text
    assert "bert-jax import --source theirs --workdir runs/run" in text


@pytest.mark.full
@pytest.mark.parametrize("fresh", [[], ["mlm", "pair"]])
def test_the_code_in_the_model_card_runs(tmp_path, fresh):
    pytest.importorskip("torch")
    make_run(tmp_path / "run", step=0, kind="unigram", fresh=fresh)
    (code,) = re.findall(r"```python\n(.*?)```", export(tmp_path), re.DOTALL)
    command = [sys.executable, "-c", code]
    process = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    assert process.stdout.count("token_str") == (0 if fresh else 5), process.stdout


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """A directory with an intact run, one without checkpoints, one with NaN, and outputs that exist."""
    directory = tmp_path_factory.mktemp("runs")
    make_run(directory / "run")
    for name in ("empty", "broken"):
        shutil.copytree(directory / "run", directory / name)
    shutil.rmtree(directory / "empty/checkpoints/7")
    *_, params = make_run(directory / "other")
    params["mlm"]["norm"]["scale"] = np.full(32, np.nan, np.float32)
    save(directory / "broken", 8, params)
    (directory / "full/inside").mkdir(parents=True)
    (directory / "file").write_text("")
    return directory


@pytest.mark.parametrize(
    "changes, named",
    [
        ({"--workdir": "nowhere"}, "nowhere"),
        ({"--workdir": "empty"}, "empty/checkpoints"),
        ({"--workdir": "broken"}, "cls.predictions.transform.LayerNorm.weight"),
        ({"--output": "full"}, "--output full"),
        ({"--format": "google", "--license": "mit"}, "--format google"),
        ({"--push": "my/own/run"}, "--push my/own/run"),
        ({"--push": "my/run"}, "hf auth login"),
        ({"--config.seed": "1"}, "config"),
    ],
)
def test_bad_input_writes_nothing(directory, monkeypatch, changes, named):
    monkeypatch.chdir(directory)
    monkeypatch.setattr("bert_jax.commands.export.get_token", lambda: None)
    before = sorted(directory.rglob("*"))
    options = {"--workdir": "run", "--output": "out"} | changes
    assert named in refused("export", *(f"{key}={value}" for key, value in options.items()))
    assert sorted(directory.rglob("*")) == before


# --- Uploads --------------------------------------------------------------------------------------


@pytest.fixture
def hub(monkeypatch):
    """A stand-in for the library's client, with the same signatures."""
    client = create_autospec(HfApi, instance=True)
    client.create_repo.return_value = RepoUrl("https://huggingface.co/owner/name")
    monkeypatch.setattr(exporting, "HfApi", lambda: client)
    monkeypatch.setattr(exporting, "get_token", lambda: "hf_secret")
    return client


def test_the_exported_directory_is_uploaded_to_a_private_repository(hub, tmp_path, capsys):
    make_run(tmp_path / "run")
    card = export(tmp_path, "--push", "owner/name")
    hub.create_repo.assert_called_once_with("owner/name", private=True, exist_ok=True)
    hub.upload_folder.assert_called_once_with(repo_id="owner/name", folder_path=tmp_path / "out")
    assert "model='owner/name')" in card and f"hf upload owner/name {tmp_path}" not in card
    assert re.search(r"hf upload owner/name \S+ \.", card)
    assert "https://huggingface.co/owner/name" in capsys.readouterr().out


def test_a_refusal_is_one_line_and_keeps_the_export(hub, tmp_path, capsys):
    hub.upload_folder.side_effect = ValueError("403\nno write access")
    make_run(tmp_path / "run")
    paths = f"--model={tmp_path}/run", f"--output={tmp_path}/out"
    assert main(["export", *paths, "--push", "owner/name"]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "--push owner/name: " in error and "403" in error
    assert f"hf upload --private owner/name {tmp_path}/out" in error
    assert (tmp_path / "out/model.safetensors").is_file()

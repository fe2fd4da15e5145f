"""`export --push`: what the Hugging Face hub's client is asked for; its refusals name the way out."""

import re
from unittest.mock import create_autospec

import pytest
from huggingface_hub import HfApi, RepoUrl
from kits.runs import make_run

from bert_jax.cli import main
from bert_jax.commands import export


@pytest.fixture
def hub(monkeypatch):
    """A stand-in for the library's client, with the same signatures."""
    client = create_autospec(HfApi, instance=True)
    client.create_repo.return_value = RepoUrl("https://huggingface.co/owner/name")
    monkeypatch.setattr(export, "HfApi", lambda: client)
    monkeypatch.setattr(export, "get_token", lambda: "hf_secret")
    return client


def push(directory) -> int:
    make_run(directory / "run")
    paths = "--model", directory / "run", "--output", directory / "out", "--push", "owner/name"
    return main(["export", *map(str, paths)])


def test_the_exported_directory_is_uploaded_to_a_private_repository(hub, tmp_path, capsys):
    assert push(tmp_path) == 0
    hub.create_repo.assert_called_once_with("owner/name", private=True, exist_ok=True)
    hub.upload_folder.assert_called_once_with(repo_id="owner/name", folder_path=tmp_path / "out")
    card = (tmp_path / "out/README.md").read_text()
    assert "model='owner/name')" in card and f"hf upload owner/name {tmp_path}" not in card
    assert re.search(r"hf upload owner/name \S+ \.", card)
    assert "https://huggingface.co/owner/name" in capsys.readouterr().out


def test_a_refusal_is_one_line_and_keeps_the_export(hub, tmp_path, capsys):
    hub.upload_folder.side_effect = ValueError("403\nno write access")
    assert push(tmp_path) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "--push owner/name: " in error and "403" in error
    assert f"hf upload --private owner/name {tmp_path}/out" in error
    assert (tmp_path / "out/model.safetensors").is_file()

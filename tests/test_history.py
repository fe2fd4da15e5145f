"""docs/history.md: each command of the page trains."""

import re
import shlex

import pytest
from kits.paths import ROOT
from kits.runs import lines
from kits.small import overrides

from bert_jax.cli import main

COMMANDS = re.findall(r"^    bert-jax (.+)", (ROOT / "docs/history.md").read_text(), re.MULTILINE)
KEYS = {
    "compilation_cache": "",
    "phases.main.steps": 20,
    "phases.main.batch": 8,
    "schedule.warmup": 5,
    "log.every": 5,
    "log.report": False,
    "evaluate.every": 20,
    "evaluate.rows": 8,
    "checkpoint.every": 20,
}


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.split("/")[-1])
def test_a_command_trains_for_20_steps(tmp_path, monkeypatch, command):
    monkeypatch.chdir(ROOT)
    *words, workdir = shlex.split(command)
    assert words[-1] == "--workdir" and workdir.startswith("runs/")
    keys = KEYS | {"store": tmp_path / "store"}
    options = [f"--config.{override}" for override in overrides(keys)]
    assert main([*words, str(tmp_path / "run"), *options]) == 0
    losses = [line["loss"] for line in lines(tmp_path / "run") if line["split"] == "train"]
    assert losses[-1] < losses[0]

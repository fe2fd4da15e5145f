"""benchmarks/: the command of every table exists and parses, and a table ends at the command that fails."""

import argparse
import importlib
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from kits.paths import ROOT

from benchmarks import tables
from bert_jax import cli, config

BLOCKS = "\n".join(tables.read().values()).replace("\\\n", "")
COMMANDS = sorted({*BLOCKS.splitlines()})
NEEDS = {"finetune_transformers": "torch"}


class Parsed(Exception):
    """Raised by a script instead of running, once it has parsed its arguments."""


def parse_script(name: str, arguments: list[str], monkeypatch) -> None:
    """Asserts that a script of benchmarks/ accepts its arguments; only config keys may be left over."""
    pytest.importorskip(NEEDS.get(name, "sys"))
    parse = argparse.ArgumentParser.parse_known_args

    def stop(*positional, **named):
        _, rest = parse(*positional, **named)
        raise Parsed([word for word in rest if not word.startswith("--config.")])

    module = importlib.import_module(f"benchmarks.{name}")
    monkeypatch.setattr(argparse.ArgumentParser, "parse_known_args", stop)
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    with pytest.raises(Parsed) as parsed:
        module.main()
    assert parsed.value.args == ([],)


def parse_command(words: list[str]) -> None:
    """Parses the arguments of a bert-jax command, and loads its config."""
    rest, overrides = cli.split_overrides(words)
    options = cli.parser(cli.COMMANDS).parse_args(rest)
    if getattr(options, "config", None):
        config.load(options.config, overrides)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_exist_and_parse(command, tmp_path, monkeypatch):
    match shlex.split(re.sub(r"\$(DATA|SCRATCH)", str(tmp_path), command)):
        case ["bert-jax", *arguments]:
            parse_command(arguments)
        case ["python", script, *arguments] if script.startswith("benchmarks/"):
            parse_script(Path(script).stem, arguments, monkeypatch)
        case ["python", "-m", "pytest", *files] | ["bash", "launch/test.sh", *files]:
            files = [file for file in files if not file.startswith("-")]
            assert files and all((ROOT / file).exists() for file in files)
        case ["bash", script, *_] if script.endswith(".sh"):
            subprocess.run(["bash", "-n", ROOT / script], check=True)
        case [program, *_]:
            assert program == "tar"

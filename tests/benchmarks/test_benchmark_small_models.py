"""benchmarks/small_models.py: its commands are valid and run once; pairs are distinct; the table has every model."""

import json
from collections import Counter
from pathlib import Path

import pytest

from benchmarks import small_models
from bert_jax import cli, config

SCORES = {
    "accuracy": 0.75,
    "standard_error": 0.02,
    "ties": 3,
    "by": {"UID": {kind: {"accuracy": 0.5} for kind in small_models.KINDS}},
}


@pytest.fixture
def commands(monkeypatch) -> list[str]:
    """Returns a list that records the commands, which are parsed, and write a result in place of running."""
    recorded = []

    def record(command, *arguments):
        recorded.append(command)
        words, overrides = cli.split_overrides([command, *map(str, arguments)])
        options = cli.parser([command]).parse_args(words)
        if command != "score":
            config.load(options.config, overrides)
        is_run = command == "pretrain"
        file = Path(options.workdir, "summary.json") if is_run else Path(options.json)
        values = {"pretrain": {"seconds": 90}, "score": SCORES}
        values["finetune"] = {"": {"emerging.dev f1": [0.125], "dev spearman": [0.25]}}
        # ELECTRA's steps cost twice those of BERT.
        cost = 2.0 if any("replaced_tokens" in str(word) for word in arguments) else 1.0
        values["config"] = {"counts": {"flops_per_token": {"main": cost}}}
        file.write_text(json.dumps(values[command]))

    monkeypatch.setattr(small_models, "bert_jax", record)
    return recorded


def test_commands_are_valid_and_run_once(commands, tmp_path, capsys):
    data = ["--text", "a.txt", "--wnut", str(tmp_path), "--output", str(tmp_path / "out")]
    tables = []
    for _ in range(2):
        assert small_models.main([*data, "--tokens", "41000"]) == 0
        tables.append(capsys.readouterr().out.splitlines())
    assert Counter(commands) == dict.fromkeys(["pretrain", "score", "finetune"], 6)
    assert tables[0] == tables[1] and len(tables[0]) == 2 + 6
    assert tables[0][2].startswith("| BERT | 1.5 | 10 | 0.750 ± 0.020 | 0.50 |")
    assert tables[0][3].startswith("| BERT, random weights |")
    assert (tmp_path / "out/GPT_10_0").is_dir()
    # Results of another command are not taken for its own.
    assert small_models.main([*data, "--tokens", "41001"]) == 2
    assert "has results of another command" in capsys.readouterr().err
    assert len(commands) == 18


def test_models_have_equal_flops_and_two_tasks(commands, tmp_path, capsys):
    data = ["--text", "a.txt", "--wnut", str(tmp_path), "--output", str(tmp_path / "out")]
    options = ["--models", "BERT", "ALBERT", "ELECTRA", "--flops", "--stsb", str(tmp_path)]
    assert small_models.main([*data, *options, "--tokens", "41000"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[2] for line in lines[2::2]] == ["10", "10", "5"]
    assert Counter(commands) == {"config": 3, "pretrain": 6, "score": 4, "finetune": 12}
    assert all(line.endswith("| 0.125 | 0.250 |") for line in lines[2:])
    assert lines[-1].count(" - ") == 2 + len(small_models.KINDS)


def test_pairs_are_distinct_and_balanced():
    pairs = small_models.make_pairs()
    assert pairs == small_models.make_pairs()
    kinds = Counter(pair["UID"] for pair in pairs)
    assert kinds == dict.fromkeys(small_models.KINDS, small_models.EACH)
    sentences = [pair[key] for pair in pairs for key in ("sentence_good", "sentence_bad")]
    assert len({*sentences}) == len(sentences)

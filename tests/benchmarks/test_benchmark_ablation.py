"""benchmarks/ablation.py: commands are valid and run once, FLOPs are equal, and small differences are ties."""

import json
from pathlib import Path

import pytest

from benchmarks import ablation
from bert_jax import cli, config

COST = {"masked_30": 2e9}  # FLOPs of a step; 1e9 of the others
PHASE = {"step_seconds": 0.5, "tokens_per_second": 8000.0}  # 4,000 places a step
SCORES = {"dev accuracy": [0.8], "dev spearman": [None], "emerging.dev f1": [0.1]}


@pytest.fixture
def commands(monkeypatch) -> list[str]:
    """Returns a list that records the commands, which are parsed, and write a result in place of running."""
    recorded = []

    def record(command, *arguments):
        recorded.append(command)
        words, overrides = cli.split_overrides([command, *map(str, arguments)])
        options = cli.parser([command]).parse_args(words)
        config.load(options.config, overrides)
        is_run = command == "pretrain"
        file = Path(options.workdir, "summary.json") if is_run else Path(options.json)
        phase = PHASE | {"flops_per_step": COST.get(file.parent.name, 1e9)}
        values = {"phases": {"main": phase}, "models": [{"nats_per_word": 5.0}]}
        file.write_text(json.dumps({"": SCORES} if command == "finetune" else values))

    monkeypatch.setattr(ablation, "bert_jax", record)
    return recorded


def test_commands_are_valid_and_run_once_and_recipes_have_equal_flops(commands, tmp_path, capsys):
    for name in ("SST-2", "STS-B"):
        (tmp_path / name).mkdir()
    data = ["--text", "a.txt", "--glue", str(tmp_path), "--wnut", str(tmp_path), "--jobs", "2"]
    arguments = [*data, "--output", str(tmp_path / "out"), "--seeds", "1", "--tokens", "4e5"]
    tables = []
    for _ in range(2):
        assert ablation.main(arguments) == 0
        tables.append(capsys.readouterr().out)
    number = len(ablation.RECIPES)
    assert len(commands) == number + number * (2 + len(ablation.TASKS))
    assert tables[0] == tables[1]
    steps = {row.split(" | ")[0].strip("| "): row.split(" | ")[1] for row in tables[0].splitlines()}
    assert steps["bert"] == steps["wsd"] == "100"
    assert (steps["masked_30"], steps["random_weights"]) == ("50", "1")
    results = map(json.loads, (tmp_path / "out/results.jsonl").read_text().splitlines())
    assert [row["steps"] for row in results if row["recipe"] == "masked_30"] == [50]
    other = [*data, "--output", str(tmp_path / "other"), "--seeds", "1", "--minutes", "2"]
    assert ablation.main([*other, "--only", "wsd"]) == 0
    assert "| wsd | 240 |" in capsys.readouterr().out
    assert ablation.main([*arguments, "--shape", "4/256"]) == 2


def test_differences_within_the_spread_are_ties():
    base = [1.0, 1.2]
    assert ablation.cell([2.0, 2.2], base) == "2.100 ± 0.141 (+1.000)"
    assert ablation.cell([1.1, 1.3], base).endswith("(+0.100, tie)")
    assert ablation.cell([9.0], [1.0]) == "9.000 (+8.000)"
    assert ablation.cell([9.0, float("nan")], base) == "nan ± nan (+nan)"

"""The command line: results, exit codes, and one line for bad input, which leaves no files."""

import argparse
import json
import signal

import pytest
from kits.malformed_inputs import refused
from kits.small import overrides

from bert_jax import cli, errors

PATHS = ("--workdir", "--model", "--a", "--b", "--store", "--source", "--output", "--save")
PATHS += ("--profile", "--add-words")
REQUIRED = {"--config": "demo", "--topology": "v5e:2x2", "--step": "1"}


def arguments(settings, *more, **changes):
    keys = [f"--config.{key}" for key in overrides(settings | changes)]
    return ["--config", "demo", *keys, *map(str, more)]


def result(capsys, *command):
    """Runs a command, which succeeds; returns its JSON."""
    assert cli.main([*map(str, command), "--json", "-"]) == 0
    return json.loads(capsys.readouterr().out)


# --- Results --------------------------------------------------------------------------------------


def test_config_prints_every_key_and_counts_as_the_run(finished, capsys):
    settings, workdir = finished
    assert cli.main(["config", *arguments(settings)]) == 0
    assert "model.width = 32    # base: 768" in capsys.readouterr().out
    values = result(capsys, "config", *arguments(settings))
    assert values["model"]["width"] == 32
    info = json.loads((workdir / "run.json").read_text())
    counts = values["counts"]
    for key in ("parameters", "body_parameters"):
        assert counts[key] == info[key]
    phase = info["phases"]["main"]
    flops = phase["flops_per_step"] / phase["tokens_per_step"]
    assert counts["flops_per_token"] == {"main": flops}


def test_inspect_prints_the_batch_of_a_step(finished, capsys):
    command = ["inspect", *arguments(finished[0]), "--step"]
    first, again, other = (result(capsys, *command, step, "--rows", 3) for step in (0, 0, 1))
    assert first["sha256"] == again["sha256"] != other["sha256"]
    assert len(first["rows"]) == 3 and first["rows"][0].count("[SEP]") == 2
    assert sum(row.count("{") for row in first["rows"]) > 0 and 0 < first["real_token_share"] <= 1
    assert cli.main([*command, "0"]) == 0
    assert "label 0: the second sentence follows" in capsys.readouterr().out


def test_predict_fills_in_masks(finished, capsys):
    command = ["predict", "--model", finished[1], "--top", 3]
    one, two = result(capsys, *command, "kas kat [MASK] ka", "[MASK] los [MASK]")
    assert [len(one["masks"]), len(two["masks"])] == [1, 2]
    shares = [candidate["probability"] for candidate in one["masks"][0]]
    assert shares == sorted(shares, reverse=True) and 0 < sum(shares) <= 1


def test_a_line_without_masks_is_named(finished, tmp_path):
    (tmp_path / "new.txt").write_text("kas [MASK]\n\nkat [MASK]\n")
    command = "predict", "--model", finished[1], "--input", tmp_path / "new.txt"
    assert f"{tmp_path}/new.txt:2:" in refused(*command)
    (tmp_path / "new.txt").write_text("")
    assert f"{tmp_path}/new.txt" in refused(*command)


def test_of_two_values_of_a_key_the_last_one_is_used(capsys):
    assert (
        result(capsys, "config", "--config", "demo", "--config.seed=1", "--config.seed", 2)["seed"]
        == 2
    )


def test_help_names_every_exit_code(capsys):
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    listed = capsys.readouterr().out.partition("exit codes:")[2]
    codes = {int(line.split()[0]) for line in listed.splitlines() if line[:5].strip().isdecimal()}
    signals = signal.SIGABRT, signal.SIGKILL, signal.SIGALRM, signal.SIGTERM
    by_signal = {128 + number for number in signals}
    assert codes == {0, 1, 2, 75, 130, errors.LOST} | by_signal


# --- Refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command, named",
    [
        ("", "COMMAND"),
        ("unheard-of", "unheard-of"),
        ("pretrain --config demo", "--workdir"),
        ("pretrain --config nowhere --workdir w", "--config nowhere"),
        ("prepare --config demo --config.corpus.source a.txt text/b.txt", "text/b.txt: not an"),
        ("pretrain --config demo --workdir w --config.phases.main.batch=12", "phases.main.batch"),
        ("pretrain --config demo --workdir w --config.tokenizer.path=no.txt", "no.txt"),
        ("inspect --config demo --step 3000", "--step 3000"),
        ("config --config demo --config.store", "--config.store"),  # without a value
        ("status --workdir nowhere --config.seed=1", "--config.seed"),
        ("evaluate", "--model"),
        ("evaluate --model nowhere", "nowhere"),
        ("evaluate --model m --model n", "--config"),
    ],
)
def test_bad_input_is_named_in_one_line(command, named, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    paths = ["--config.store=store", "--config.compilation_cache="]
    is_run = command.startswith(("pretrain", "inspect"))
    assert named in refused(*command.split(), *(paths if is_run else []))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "command", [name for name in cli.COMMANDS if name not in ("pretrain", "env")]
)
@pytest.mark.parametrize("path", [".", "nowhere/file"])
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_read(
    command, path, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    arguments = [command]
    for option, settings in cli.load_command(command).OPTIONS:
        if settings.get("required"):
            arguments += [option.split()[0], REQUIRED.get(option, "somewhere")]
    names = ["--json"]
    if command in ("predict", "features"):
        names.append("--output")
    for name in names:
        assert f"{name}: {path}" in refused(*arguments, name, path)
    assert not list(tmp_path.iterdir())


def test_a_full_disk_leaves_the_earlier_results(tmp_path, monkeypatch):
    path = tmp_path / "results.json"
    path.write_text("earlier")

    def full(number: int):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(errors.Unfinished, match="--json"):
        cli.show(argparse.Namespace(json=str(path)), {}, "text")
    assert [each.read_text() for each in tmp_path.iterdir()] == ["earlier"]


PATH_OPTIONS = [
    (command, option)
    for command in cli.COMMANDS
    for option, _ in cli.load_command(command).OPTIONS
    if option in PATHS
]


@pytest.mark.parametrize("command, name", PATH_OPTIONS)
def test_an_empty_path_is_refused(command, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = [command, name, ""]
    for option, settings in cli.load_command(command).OPTIONS:
        if option != name and settings.get("required"):
            arguments += [option, REQUIRED.get(option, "somewhere")]
    assert name in refused(*arguments)
    assert not list(tmp_path.iterdir())

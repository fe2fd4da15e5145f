"""The command line: results, exit codes, and one line for every bad input, with nothing half-written."""

import gzip
import io
import json
import signal
import sys

import pytest
from kits.small import SMALL, overrides, write_corpus

from bert_jax import errors
from bert_jax.cli import main
from bert_jax.runs import jax_setup

FEW_STEPS = {"phases.main.steps": 4, "log.every": 2, "checkpoint.every": 4, "evaluate.every": 0}


def arguments(directory, *more, **changes):
    places = {"corpus.source": directory / "corpus.txt", "store": directory / "store"}
    keys = [f"--config.{key}" for key in overrides(SMALL | FEW_STEPS | places | changes)]
    return ["--config", "demo", *keys, *map(str, more)]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A directory with a corpus, a store and a finished run."""
    directory = tmp_path_factory.mktemp("world")
    write_corpus(directory / "corpus.txt", documents=60)
    assert main(["pretrain", *arguments(directory, "--workdir", directory / "run")]) == 0
    return directory


def result(capsys, *command):
    assert main([*map(str, command), "--json", "-"]) == 0
    return json.loads(capsys.readouterr().out)


def test_config_prints_every_key(world, capsys):
    assert main(["config", *arguments(world)]) == 0
    assert "model.width = 32    # base: 768" in capsys.readouterr().out
    assert result(capsys, "config", *arguments(world))["model"]["width"] == 32


def test_a_terminal_that_lacks_characters(world, monkeypatch):
    out = io.TextIOWrapper(io.BytesIO(), "ascii")
    monkeypatch.setattr(sys, "stdout", out)
    assert main(["predict", "--model", str(world / "run"), "caf\xe9 [MASK]"]) == 0
    assert b"caf\\xe9" in out.buffer.getvalue()


def test_inspect_shows_the_batch_of_a_step(world, capsys):
    first = result(capsys, "inspect", *arguments(world), "--step", 0, "--rows", 3)
    again = result(capsys, "inspect", *arguments(world), "--step", 0)
    other = result(capsys, "inspect", *arguments(world), "--step", 1)
    assert first["sha256"] == again["sha256"] != other["sha256"]
    assert len(first["rows"]) == 3 and first["rows"][0].count("[SEP]") == 2
    assert first["rows"][0].count("{") <= 5 and 0 < first["fill"] <= 1
    assert sum(row.count("{") for row in first["rows"]) > 0


def test_predict_fills_in_masks(world, capsys):
    texts = ["kas kat [MASK] ka", "[MASK] los [MASK]"]
    one, two = result(capsys, "predict", "--model", world / "run", "--top", 3, *texts)
    assert [len(one["masks"]), len(two["masks"])] == [1, 2]
    shares = [candidate["probability"] for candidate in one["masks"][0]]
    assert shares == sorted(shares, reverse=True) and 0 < sum(shares) <= 1
    assert main(["predict", "--model", str(world / "run"), texts[0]]) == 0
    assert "[MASK] 1:" in capsys.readouterr().out


def test_evaluate_and_status(world, capsys, tmp_path):
    file = tmp_path / "numbers.json"
    assert main(["evaluate", "--workdir", str(world / "run"), "--json", str(file)]) == 0
    values = json.loads(file.read_text())
    assert {"step", "unigram_entropy", "mlm_loss_masked", "nsp_accuracy"} <= set(values)
    capsys.readouterr()
    assert result(capsys, "status", "--workdir", world / "run")["state"] == "done"


def test_evaluate_of_models(world, capsys):
    command = ["evaluate", "--model", world / "run", "--model", world / "run", *arguments(world)]
    values = result(capsys, *command)
    one, two = values["models"]
    assert one == two and one["model"] == str(world / "run")
    assert values["words"] > 0 and one["unknown"] == 0 and one["nats_per_word"] > 0
    assert one["held_out"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "expected --workdir, or --model and --config"),
        (["--workdir", "w", "--model", "m"], "expected --workdir, or --model and --config"),
        (["--model", "m"], "--model and --config, which names the text, go together"),
        (["--workdir", "w", "--config", "demo"], "go together"),
    ],
)
def test_evaluate_of_either(capsys, options, words):
    assert main(["evaluate", *options]) == 2
    assert words in capsys.readouterr().err


def test_compare_finds_no_difference(world, capsys):
    values = result(capsys, "compare", "--a", world / "run", "--b", world / "run")
    assert values["bitwise"] == len(values["tensors"]) > 40
    assert values["outputs"]["mlm_logits"]["difference"] == 0
    assert main(["compare", "--a", str(world / "run"), "--b", str(world / "run")]) == 0
    assert "tensors of the same shape are bitwise equal" in capsys.readouterr().out


def bad_corpus(directory, kind):
    path = directory / "corpus.txt"
    if kind == "empty":
        path.write_text("\n\n")
    if kind == "one document":
        path.write_text("one sentence\nanother sentence\n")
    if kind == "cut off":
        packed = gzip.compress(b"some words\n\n" * 10000)
        (directory / "corpus.txt.gz").write_bytes(packed[: len(packed) // 2])
        return {"corpus.source": directory / "corpus.txt.gz"}
    return {}


@pytest.mark.parametrize("kind", ["empty", "one document", "missing", "cut off"])
@pytest.mark.parametrize("command", ["prepare", "pretrain"])
def test_bad_corpora(tmp_path, capsys, kind, command):
    changes = bad_corpus(tmp_path, kind)
    before = sorted(tmp_path.iterdir())
    more = ("--workdir", tmp_path / "run") if command == "pretrain" else ()
    assert main([command, *arguments(tmp_path, *more, **changes)]) == 2
    *progress, error = capsys.readouterr().err.strip().splitlines()
    assert error.startswith("bert-jax: ") and not any("bert-jax" in line for line in progress)
    assert "corpus.txt" in error or "document" in error
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"model.heads": 5}, "model.heads=5"),
        ({"model.nose": 5}, "model.nose"),
        ({"phases.main.batch": 12}, "phases.main.batch=12: does not divide over 8 devices"),
        ({"mesh.tensor": 3}, "does not fit 8 devices"),
        ({"phases.main.length": 64}, "longer than model.positions=32"),
        ({"phases.main.predictions": 30}, "more than fit"),
        ({"corpus.source": "nowhere/*.txt"}, "nowhere/*.txt"),
        ({"tokenizer.path": "nowhere.txt"}, "nowhere.txt"),
        ({"store": "missing", "corpus.source": "nowhere.txt"}, "nowhere.txt"),
    ],
)
def test_bad_keys(world, tmp_path, monkeypatch, capsys, changes, words):
    monkeypatch.chdir(tmp_path)
    more = arguments(world, "--workdir", tmp_path / "new", **changes)
    assert main(["pretrain", *more]) == 2
    error = capsys.readouterr().err.strip()
    assert words in error and "\n" not in error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "damage, words",
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-10]), "tokens.npy"),
        (lambda path: path.unlink(), "tokens.npy"),
        (lambda path: path.write_bytes(path.read_bytes()[:-2] + b"\1\0"), "altered"),
        (lambda path: (path.parents[1] / "manifest.json").write_text("{}"), "manifest.json"),
    ],
)
def test_damaged_stores(tmp_path, capsys, damage, words):
    write_corpus(tmp_path / "corpus.txt", documents=20)
    assert main(["prepare", *arguments(tmp_path)]) == 0
    damage(tmp_path / "store/train/tokens.npy")
    capsys.readouterr()
    assert main(["pretrain", *arguments(tmp_path, "--workdir", tmp_path / "run")]) == 2
    error = capsys.readouterr().err.strip()
    assert words in error and "\n" not in error
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "command, words",
    [
        (["evaluate", "--workdir", "nowhere"], "nowhere: not a run"),
        (["status", "--workdir", "nowhere"], "nowhere: not a run"),
        (["predict", "--model", "nowhere", "a [MASK]"], "nowhere: not a directory"),
        (["pretrain", "--config", "nowhere", "--workdir", "w"], "--config nowhere: no such config"),
        (["status", "--workdir", "nowhere", "--config.seed=1"], "this command takes no config"),
    ],
)
def test_things_that_are_not_there(tmp_path, monkeypatch, capsys, command, words):
    monkeypatch.chdir(tmp_path)
    assert main(command) == 2
    assert words in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_places_that_cannot_be_written(world, tmp_path, capsys):
    file = tmp_path / "file"
    file.write_text("")
    assert main(["pretrain", *arguments(world, "--workdir", file / "run")]) == 2
    assert "file is not a directory" in capsys.readouterr().err
    assert main(["config", *arguments(world), "--json", str(tmp_path / "nowhere/x.json")]) == 2
    assert "--json" in capsys.readouterr().err


def test_texts_that_cannot_be_filled_in(world, capsys):
    for text, words in (("no mask", "there is no [MASK]"), ("kas [MASK] " * 40, "32 positions")):
        assert main(["predict", "--model", str(world / "run"), text]) == 2
        assert words in capsys.readouterr().err


def test_steps_beyond_the_run(world, capsys):
    assert main(["inspect", *arguments(world, "--step", 4)]) == 2
    assert "--step 4: the run has the steps 0 to 3" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    [
        [],
        ["unheard-of"],
        ["pretrain", "--config", "demo"],
        ["benchmark", "--config", "demo", "--steps", "0"],
    ],
)
def test_usage_errors_are_a_line(command, capsys):
    assert main(command) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("bert-jax: ") and line.endswith("--help")


def test_help_names_every_exit_code(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    told = capsys.readouterr().out.partition("exit codes:")[2]
    codes = {int(line.split()[0]) for line in told.splitlines() if line[:5].strip().isdecimal()}
    ends = {0, 1, 2, jax_setup.PREEMPTED, jax_setup.INTERRUPTED, errors.LOST}
    signals = {128 + number for number in (signal.SIGABRT, signal.SIGKILL, signal.SIGTERM)}
    assert codes == ends | signals

"""Shorter, longer and otherwise changed runs of the shipped configs: the keys that follow from the overridden ones."""

import gzip
import lzma
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
from kits import runs
from kits.paths import ROOT, data
from kits.small import overrides

from bert_jax import config as configs
from bert_jax import train
from bert_jax.cli import main
from bert_jax.errors import BadInput
from bert_jax.runs import continuation, workdir
from bert_jax.runs.workdir import Workdir
from bert_jax.tasks.supervised import epochs

FILES = ROOT.glob("configs/*.py")
NAMES = sorted(file.stem for file in FILES if file.stem not in ("__init__", "base"))
FLOAT = ["dtype=float32"]


def steps_of(name: str, share: float) -> list[str]:
    """Returns overrides of the steps of all phases of a config: this share of them."""
    keys = {}
    for phase in configs.phases(configs.load(name)):
        keys[f"phases.{phase.name}.steps"] = max(1, round(share * (phase.stop - phase.first)))
    return overrides(keys)


def check(config, path, patch) -> None:
    """Runs the checks of `pretrain` before it opens the data."""
    runs.use_devices(patch, max(1, config.mesh.fsdp))
    train.check(config, Workdir(path / "run"), train.Start())


@pytest.mark.parametrize("name", NAMES)
def test_a_config_of_other_steps_passes_the_checks(name, tmp_path, monkeypatch):
    shipped = configs.load(name, FLOAT)
    total = configs.total_steps(shipped)
    short = configs.load(name, steps_of(name, 20 / total) + FLOAT)
    assert not short.task.get("epochs")  # which would decide the steps
    check(short, tmp_path, monkeypatch)
    assert short.schedule.warmup <= 0.35 * configs.total_steps(short) + 1
    assert short.log.every <= configs.total_steps(short) // 10
    assert short.checkpoint.average <= shipped.checkpoint.average
    long = configs.load(name, steps_of(name, 2) + FLOAT)
    check(long, tmp_path, monkeypatch)
    changed = {key for key in configs.differences(shipped, long) if not key.endswith(".steps")}
    if total > 1:
        assert changed <= {"schedule.decay"}
        assert long.schedule.decay == pytest.approx(2 * shipped.schedule.decay, abs=2)


# {overrides of `translate`: the keys that follow}; it has an average of 10 checkpoints, saved every 50 of 3,000 steps.
SHORT = "schedule.warmup=100 optimizer.learning_rate=0.00158"
CHANGES = {
    "phases.main.steps=300": f"{SHORT} checkpoint.every=5 log.every=5",
    "phases.main.steps=300 checkpoint.every=30": f"{SHORT} log.every=30",
    "phases.main.steps=301 log.every=7": f"{SHORT} checkpoint.every=7",
    "phases.main.steps=300 optimizer.learning_rate=5e-3": (
        "schedule.warmup=100 checkpoint.every=5 log.every=5"
    ),
    "phases.main.steps=5": (
        "schedule.warmup=2 optimizer.learning_rate=0.0005 checkpoint.average=5 checkpoint.every=1 log.every=1"
    ),
    "checkpoint.every=25": "log.every=25",
    "checkpoint.every=75": "log.every=25",
    "checkpoint.every=101": "log.every=101",  # not each step
    "log.every=20": "checkpoint.every=40",
    "log.every=1000": "checkpoint.every=1000 checkpoint.average=3",
    "checkpoint.average=20": "checkpoint.keep=20",
    "checkpoint.keep=3": "checkpoint.average=3",
    "evaluate.every=7": "",
    "evaluate.patience=3": "checkpoint.average=1",
    "evaluate.patience=3 evaluate.every=30": (
        "checkpoint.average=1 checkpoint.every=30 log.every=30"
    ),
    "evaluate.patience=3 evaluate.every=120 log.every=20": (
        "checkpoint.average=1 checkpoint.every=40"
    ),
    "evaluate.patience=3 checkpoint.every=100": "checkpoint.average=1 evaluate.every=200",
    "phases.main.batch=32": "",
}


@pytest.mark.parametrize("changes", CHANGES)
def test_what_is_not_overridden_follows(changes, tmp_path, monkeypatch):
    keys = changes.split()
    lines = []
    config = configs.load("translate", FLOAT + keys, lines.append)
    check(config, tmp_path, monkeypatch)
    asked = configs.find("translate")
    configs.apply(asked, FLOAT + keys)
    followed = {key: str(now) for key, (_, now) in configs.differences(asked, config).items()}
    assert followed == dict(pair.split("=") for pair in CHANGES[changes].split())
    assert {line.partition("=")[0] for line in lines} == {f"config.{key}" for key in followed}


@pytest.mark.parametrize(
    "name, steps, warmup, rate",
    [
        ("transformer_base", 900, 300, 5e-4),  # its rate of 0 would rise
        ("demo", 607, 210, 6e-3 / 3**0.5),
        ("gpt2_small", 900, 300, 5e-4),
        ("my_corpus", 900, 300, 1e-3 * 0.3**0.5),
        ("glue", 900, 90, 5e-5),
    ],
)
def test_a_peak_falls_with_the_warm_up_unless_it_is_low(name, steps, warmup, rate):
    config = configs.load(name, [f"phases.main.steps={steps}"])
    assert config.schedule.warmup == warmup
    assert configs.peak_rate(config) == pytest.approx(rate, rel=1e-2)


def test_a_rate_by_the_width_stays(tmp_path):
    """Of the config of a run, which has the steps of its examples."""
    keys = ["phases.main.steps=1500", "schedule.warmup=150", "model.width=128", "model.heads=4"]
    configs.save(configs.load("glue", keys), tmp_path / "config.json")
    config = configs.load(str(tmp_path / "config.json"), ["phases.main.steps=500"])
    assert config.schedule.warmup == 50 and configs.peak_rate(config) == pytest.approx(3e-4)


def test_a_file_may_be_valid_with_its_overrides_alone(tmp_path):
    """And what is wrong in a key that others follow from is named."""
    lines = ["from bert_jax.configs import transformer_base", "def get_config():"]
    lines += ["config = transformer_base.get_config()", "config.schedule.warmup = 0"]
    lines += ["config.phases.main.steps = 0", "return config"]
    (tmp_path / "mine.py").write_text("\n    ".join(lines).replace("    def", "def"))
    config = configs.load(str(tmp_path / "mine.py"), ["phases.main.steps=300"])
    assert configs.total_steps(config) == 300 and config.schedule.warmup == 0
    with pytest.raises(BadInput, match="phases.main.steps=0"):
        configs.load(str(tmp_path / "mine.py"))
    for width in (0, -4):
        with pytest.raises(BadInput, match=f"model.width={width}"):
            configs.load("transformer_base", ["phases.main.steps=300", f"model.width={width}"])


def test_a_longer_run_keeps_its_reports(tmp_path):
    steps = "phases.main.steps={}".format
    configs.save(configs.load("demo", [steps(30), "log.every=10"]), tmp_path / "config.json")
    for number, every in ((60, 10), (20, 2)):
        config = configs.load(str(tmp_path / "config.json"), [steps(number)])
        assert config.log.every == every


def test_phases_keep_their_part_of_the_schedule():
    """Steps that are added to a phase do not move a warm-up or a decay in another."""
    shipped = configs.load("modern_base")
    config = configs.load("modern_base", ["phases.long.steps=50000", "phases.decay.steps=99"])
    assert config.schedule.decay == 99
    assert config.schedule.warmup == shipped.schedule.warmup


@pytest.mark.parametrize(
    "name, changes, kept, follows",
    [
        (
            "classify",
            "checkpoint.average=3",
            "log.every=50 checkpoint.every=500 schedule.warmup=10000",
            "log.every=30 checkpoint.every=90 schedule.warmup=30",
        ),
        (
            "classify",
            "task.warmup=0.02",
            "log.every=50 schedule.warmup=10000",
            "log.every=30 checkpoint.every=480 schedule.warmup=6",
        ),
        (
            "translate",
            "task.epochs=6.0 task.warmup=0.1",
            "schedule.warmup=1000 optimizer.learning_rate=0.005",
            "schedule.warmup=30 optimizer.learning_rate=0.000866 checkpoint.every=5",
        ),
    ],
)
def test_epochs_decide_the_steps_before_others_follow(
    name, changes, kept, follows, monkeypatch, capsys
):
    """At first the config has other steps than the run; standard output is left to results."""

    def assert_has(pairs):
        found = {
            key: configs.lookup(config, key) for key in dict(pair.split("=") for pair in pairs)
        }
        assert overrides(found) == pairs

    keys = changes.split()
    config = configs.load(name, keys)
    assert_has([*kept.split()])
    rows = range(int(300 * config.phases.main.batch / config.task.epochs))
    monkeypatch.setattr(epochs.tasks, "make", lambda *_: SimpleNamespace(rows=lambda *_: rows))
    config = config.copy_and_resolve_references()
    epochs.set_steps(config, None, keys)
    configs.check(config)
    assert config.phases.main.steps == 300 and config.task.epochs
    assert_has([*follows.split(), *keys])
    printed = capsys.readouterr()
    assert not printed.out and "config.schedule.warmup" in printed.err
    keys.append(f"task.epochs={2 * config.task.epochs}")
    longer = configs.load(name, keys).copy_and_resolve_references()
    epochs.set_steps(longer, None, keys)
    continuation.take_schedule(longer, config, keys)
    assert continuation.refusals(config, longer, 100) == []
    assert longer.phases.main.steps == 600 and continuation.digest(longer) == continuation.digest(
        config
    )


def test_parts_of_a_batch_divide_it():
    config = configs.load("demo", ["phases.main.batch=48", "train.micro_batches=4"])
    assert config.train.micro_batches == 4
    config.train.micro_batches = 32
    before = config.copy_and_resolve_references()
    configs.adapt(config, before, ["phases.main.batch=48"], print)
    assert config.train.micro_batches == 24


def test_a_resumed_run_keeps_its_warm_up(tmp_path, monkeypatch):
    """With other steps on the command line; the same command gives the same config, and what is overridden counts."""
    runs.use_devices(monkeypatch, 1)
    saved = configs.load("transformer_base", [*FLOAT, "phases.main.steps=300"])
    expected = saved.schedule.to_dict(), saved.optimizer.to_dict()

    def resume(*keys):
        keys = [*FLOAT, *keys]
        config = configs.load("transformer_base", keys)
        start = train.Start(100, tmp_path, "run", saved)
        train.check(config, Workdir(tmp_path / "run"), start, keys)
        return config

    for steps in (300, 400, 200, 200, 100_000):
        saved = resume(f"phases.main.steps={steps}")
        assert (saved.schedule.to_dict(), saved.optimizer.to_dict()) == expected
    for _ in range(2):  # the second one has the steps of the run
        saved = resume()
        assert (saved.schedule.to_dict(), saved.optimizer.to_dict()) == expected
    with pytest.raises(BadInput, match=r"config\.schedule\.warmup: 100 in the run"):
        resume("phases.main.steps=400", "schedule.warmup=7")


@pytest.mark.slow
def test_the_command_resumes_a_run_with_other_steps(finished, tmp_path):
    settings = {key: value for key, value in finished[0].items() if key != "schedule.warmup"}
    for steps in (20, 26):
        keys = {"phases.main.steps": steps}
        assert main(runs.pretraining(settings, tmp_path / "run", **keys)) == 0
        saved = configs.load(str(tmp_path / "run/config.json"))
        assert (saved.phases.main.steps, saved.schedule.warmup) == (steps, 7)


def test_rows_are_at_most_as_long_as_a_smaller_model():
    config = configs.load("bert_base", ["model.max_length=64"])
    assert [phase.length for phase in configs.phases(config)] == [64, 64]
    assert config.phases.long.max_predictions == 77 * 64 // 512
    with pytest.raises(BadInput, match="model.max_length=64"):
        configs.load("bert_base", ["model.max_length=64", "phases.long.length=128"])


# {config: its keys for a third of its steps, the loss, and nats that it is under the frequencies of tokens then}
# Translation has a tenth, with a quarter of its rows: its steps take longest.
THIRDS = {
    "demo": ({"phases.main.steps": 607}, "mlm_loss_masked", 0.5),
    "shakespeare_char": ({"phases.main.steps": 667}, "lm_loss", 1.0),
    "translate": (
        {"phases.main.steps": 300, "phases.main.batch": 16, "task.text": "en,de"},
        "target_nll",
        1.0,
    ),
}


def write_texts(name: str, directory) -> dict:
    """Writes the text of a config; returns the keys that name it. Skips the test without ../shared/data."""
    if name == "shakespeare_char":
        text = lzma.decompress(data("tinyshakespeare", "input.txt.xz").read_bytes())
        (directory / "input.txt").write_bytes(text)
        return {"corpus.source": directory / "input.txt"}
    if name == "translate":
        for file in data("multi30k").glob("*"):
            if file.name in ("train.en.gz", "train.de.gz", "val.en.gz", "val.de.gz"):
                (directory / file.stem).write_bytes(gzip.decompress(file.read_bytes()))
        return {"task.data": directory, "task.train": "train", "task.dev": "val"}
    return {}


@pytest.mark.full
@pytest.mark.parametrize("name", THIRDS)
def test_a_third_of_a_config_learns(name, tmp_path):
    keys, loss, nats = THIRDS[name]
    keys |= write_texts(name, tmp_path) | {"store": tmp_path / "store", "evaluate.rows": 256}
    settings = [f"--config.{override}" for override in overrides(keys)]
    command = ["-m", "bert_jax", "pretrain", "--config", name, "--workdir", tmp_path / "run"]
    environment = os.environ | {"XLA_FLAGS": ""}  # one device
    subprocess.run([sys.executable, *command, *settings], env=environment, check=True)
    summary = workdir.read_summary(tmp_path / "run")
    (split,) = {"heldout", "val"} & {*summary}
    assert summary[split][loss] < summary["unigram_entropy"] - nats

"""Every system of examples/ is trained by the commands of the package, which knows none: the same promises hold."""

import json
import os
import signal
import subprocess
import sys

import pytest
from kits import examples, faulty_program, processes, runs
from kits.objectives import assert_halves_add_up
from kits.paths import ROOT
from kits.runs import assert_same_bits, assert_same_run, lines, params
from kits.slices import needs_libtpu
from kits.small import mesh_keys, overrides

from bert_jax import config as configs
from bert_jax.cli import main
from bert_jax.convert import open_model
from bert_jax.errors import BadInput
from bert_jax.tasks.feed import open_feed
from bert_jax.train import pretrain

FIRST, *OTHERS = examples.SMALL
# All configs of a system have one network every day, and one of them is tested further; all are with --full.
LEARNING = [
    pytest.param(name, marks=[pytest.mark.full] if ":" in name else []) for name in examples.SMALL
]
FULL = [pytest.param(name, marks=pytest.mark.full) for name in examples.SMALL]
CHOSEN = (FIRST, *(pytest.param(name, marks=pytest.mark.full) for name in OTHERS))
ARGUMENTS = {
    "elmo/config_tagger.py": ("input", "between"),
    "elmo/config_wikipedia.py": ("gpt",),
    "long/config.py": ("full",),
    "long/config_characters.py": ("plain",),
    "long/config_digits.py": ("full",),
    "positions/config.py": ("shaw", "both", "absolute"),
    "positions/config_chorales.py": ("relative", "absolute"),
    "recurrent/config_multi30k.py": ("none", "transformer"),
    "universal/config.py": ("transformer",),
    "xlnet/config.py": ("bert",),
    "xlnet/config_transformer_xl.py": ("segment", "row"),
}
DIVISIONS = (
    (8, ["train.micro_batches=2"]),
    (2, ["train.micro_batches=4"]),
    (1, []),
    (2, mesh_keys((1, 2, 1))),
    (2, mesh_keys((1, 1, 2))),
    (4, mesh_keys((2, 2, 1))),
    (4, mesh_keys((2, 1, 2))),
    (4, mesh_keys((1, 2, 2))),
    (8, mesh_keys((2, 2, 2))),
)


@pytest.fixture(scope="module")
def worlds(tmp_path_factory):
    """Returns a function that trains an example, once, without a disturbance, and returns its workdir."""
    directory = tmp_path_factory.mktemp("examples")
    workdirs = {}

    def world(name: str):
        if name not in workdirs:
            workdir = directory / f"run{len(workdirs)}"
            assert pretrain(load(name, workdir), workdir) == 0
            workdirs[name] = workdir
        return workdirs[name]

    return world


def load(name: str, workdir, *changes: str):
    """Returns the small config of an example, with a store beside a workdir."""
    return examples.load(name, f"store={workdir}_store", *changes)


def command(name: str, world, workdir) -> list[str]:
    """Returns the arguments of the command that trains an example."""
    keys = examples.STEPS | examples.SMALL[name] | {"store": f"{world}_store"}
    options = [f"--config.{override}" for override in overrides(keys)]
    return ["pretrain", "--config", examples.path_of(name), *options, "--workdir", str(workdir)]


def test_each_folder_has_a_page_and_a_test():
    folders = {path.name for path in examples.EXAMPLES.iterdir() if path.is_dir()}
    assert folders and folders == {name.partition("/")[0] for name in examples.SMALL}
    assert all((examples.EXAMPLES / folder / "README.md").is_file() for folder in folders)


def test_configs_are_valid_with_each_of_their_arguments():
    for path in sorted(examples.EXAMPLES.glob("*/config*.py")):
        name = f"{path.parent.name}/{path.name}"
        changes = ["task.data=data"] if name == "recurrent/config_multi30k.py" else []
        configs.load(str(path), changes)
        for argument in ARGUMENTS.get(name, ()):
            configs.load(f"{path}:{argument}", changes)
        with pytest.raises(BadInput):
            configs.load(f"{path}:nothing", changes)


def test_the_package_names_no_example():
    modules = {f"{path.parent.name}.{path.stem}" for path in examples.EXAMPLES.glob("*/*.py")}
    for path in (ROOT / "bert_jax").rglob("*.py"):
        text = path.read_text()
        assert not [module for module in modules if f'"{module}"' in text], path


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNING)
def test_it_learns(worlds, name):
    workdir = worlds(name)
    losses = [line["loss"] for line in lines(workdir) if line["split"] == "train"]
    assert len(losses) == 4 and losses[-1] < losses[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", CHOSEN)
def test_halves_of_a_batch_add_up(worlds, name):
    run = open_model.open_model(worlds(name))
    (phase,) = configs.phases(run.config)
    batch = next(open_feed(run.config).train(phase, 0, 1))
    assert_halves_add_up(run.objective, run.params, batch)


@pytest.mark.slow
@pytest.mark.parametrize("devices, changes", DIVISIONS, ids=lambda value: str(value))
@pytest.mark.parametrize("name", FULL)
def test_the_division_of_a_batch_does_not_matter(
    worlds, tmp_path, monkeypatch, name, devices, changes
):
    undisturbed = worlds(name)
    runs.use_devices(monkeypatch, devices)
    assert pretrain(load(name, undisturbed, *changes), tmp_path / "run") == 0
    for split in {line["split"] for line in lines(undisturbed)}:
        assert_same_run(tmp_path / "run", undisturbed, split)


@pytest.mark.slow
@pytest.mark.parametrize("name", CHOSEN)
def test_killed_and_resumed_it_has_the_same_bits(worlds, tmp_path, capsys, name):
    undisturbed = worlds(name)
    arguments = command(name, undisturbed, tmp_path / "run")
    fault = {faulty_program.FAULT: "0:step:15:kill"}
    (ended,) = processes.run(arguments, tmp_path, 1, 8, **fault)
    assert ended.code == -signal.SIGKILL, ended
    assert main(arguments) == 0
    assert "resumed from step 10" in capsys.readouterr().out
    assert_same_bits(params(tmp_path / "run"), params(undisturbed))


@needs_libtpu
@pytest.mark.slow
@pytest.mark.parametrize("name", FULL)
def test_its_step_is_planned(worlds, capsys, name):
    path = str(worlds(name) / "config.json")
    assert main(["plan", "--config", path, "--topology", "v5e:2x2", "--json", "-"]) == 0
    planned = json.loads(capsys.readouterr().out)["phases"]["main"]
    assert planned["fits"] and planned["flops_per_step"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", CHOSEN)
def test_a_run_is_evaluated_from_anywhere(worlds, tmp_path, name):
    """Without the folder of examples in PYTHONPATH: run.json names it."""
    workdir = worlds(name)
    words = [sys.executable, "-m", "bert_jax", "evaluate", "--model", str(workdir), "--json", "-"]
    variables = os.environ | {"PYTHONPATH": str(ROOT)}
    ended = subprocess.run(words, cwd=tmp_path, env=variables, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    last = lines(workdir)[-1]
    assert json.loads(ended.stdout)["loss"] == pytest.approx(last["loss"], rel=1e-5)

"""`continue_from`: a run in another workdir goes on from a checkpoint of the stable phase, for example to its decay."""

import shutil

import pytest
from kits.runs import lines, load, use_devices

from bert_jax import train
from bert_jax.checkpoints import reader
from bert_jax.errors import BadInput

pytestmark = pytest.mark.slow  # each trains
KEYS = {"optimizer.name": "stable_adamw", "optimizer.weight_decay": 1e-3, "optimizer.clip": 0}
KEYS |= {"schedule.name": "wsd", "checkpoint.every": 5, "checkpoint.keep": 9, "evaluate.every": 0}
DECAY = {"schedule.decay": 5, "phases.main.steps": 15}


@pytest.fixture(scope="module")
def stable(finished, tmp_path_factory):
    """(settings, workdir) of a run of 20 steps without a decay."""
    settings, run = finished[0] | KEYS, tmp_path_factory.mktemp("stable") / "run"
    with pytest.MonkeyPatch.context() as patch:
        use_devices(patch, 1)
        assert train.pretrain(load(settings), run) == 0
        yield settings, run


def fingerprints(run, step: int) -> dict:
    """Returns the fingerprints of all parameters and of the optimizer's state."""
    return reader.read_manifest(run / f"checkpoints/{step}")


def files(run) -> dict:
    return {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


def test_a_decay_from_a_checkpoint_ends_with_the_bits_of_one_run(stable, tmp_path):
    """Also if it is killed after its first checkpoint, when the run that it continues is gone."""
    settings, run, source = stable[0] | DECAY, tmp_path / "run", tmp_path / "source"
    assert train.pretrain(load(settings), tmp_path / "straight") == 0
    expected = fingerprints(tmp_path / "straight", 15)
    assert fingerprints(stable[1], 10) == fingerprints(tmp_path / "straight", 10)
    assert fingerprints(stable[1], 15) != expected
    shutil.copytree(stable[1], source)
    before = files(source)
    settings |= {"continue_from": f"{source}@10"}
    assert train.pretrain(load(settings), run) == 0
    assert files(source) == before and reader.steps(run / "checkpoints") == [15, 10]
    assert fingerprints(run, 15) == expected
    assert lines(run)[-1]["loss"] == lines(tmp_path / "straight")[-1]["loss"]
    shutil.rmtree(source)
    shutil.rmtree(run / "checkpoints/15")
    (run / "summary.json").unlink()
    assert train.pretrain(load(settings), run) == 0
    assert fingerprints(run, 15) == expected


@pytest.mark.parametrize(
    "changes, named",
    [
        ({"seed": 1}, "config.seed"),
        ({"optimizer.name": "adam"}, "config.optimizer.name"),
        ({"phases.main.steps": 19}, "config.phases.main.steps"),
        ({"continue_from": "{}@7"}, "config.continue_from=.*@7"),
        ({"continue_from": "{}x"}, "config.continue_from=.*x"),
    ],
)
def test_what_cannot_be_continued_is_refused(stable, tmp_path, changes, named):
    settings, source = stable
    settings = settings | {"continue_from": "{}"} | changes
    settings["continue_from"] = settings["continue_from"].format(source)
    with pytest.raises(BadInput, match=named):
        train.pretrain(load(settings), tmp_path / "run")
    assert not list(tmp_path.iterdir())

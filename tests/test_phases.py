"""Phases: batch and row length that grow, and runs that are killed or continued inside a phase or after one."""

import json
import shutil

import pytest
from kits import corpora
from kits.runs import lines
from kits.small import SMALL, overrides, rate_of

from bert_jax import config, train
from bert_jax.checkpoints import reader
from bert_jax.errors import BadInput

pytestmark = pytest.mark.slow  # each compiles programs for eight devices

BATCHES = {"small": 8, "medium": 16, "large": 32}
LENGTHS = {"small": 16, "medium": 32, "large": 32}


def load(settings, **changes):
    """Returns a small bert_base_batch_warmup: its first three phases, with three steps of a 32nd of their rows each,
    and with the optimizer and schedule of ModernBERT."""
    values = {key: value for key, value in settings.items() if not key.startswith("phases")}
    values |= {
        "phase_order": ",".join(BATCHES),
        "optimizer.name": "stable_adamw",
        "optimizer.learning_rate": 1e-3,
        "optimizer.weight_decay": 1e-3,
        "mesh.fsdp": 2,
        "schedule.name": "sqrt",
        "schedule.decay": 2,
        "log.every": 2,
        "evaluate.every": 0,
        "checkpoint.every": 4,
        "checkpoint.keep": 9,
        "train.tokens_per_device": 16,
        "model.layers": 1,
        "evaluate.batch": 8,
    }
    for name, batch in BATCHES.items():
        shape = {"batch": batch, "length": LENGTHS[name], "max_predictions": 3, "steps": 3}
        values |= {f"phases.{name}.{key}": value for key, value in shape.items()}
    loaded = config.find("bert_base_batch_warmup")
    with loaded.unlocked():
        loaded.model = config.find("demo").model
        del loaded.phases.short, loaded.phases.long
    config.apply(loaded, overrides(values | changes))
    config.check(loaded)
    return loaded


@pytest.fixture(scope="module")
def phased_run(finished, tmp_path_factory):
    """(settings, workdir) of an undisturbed run with three phases on eight devices."""
    run = tmp_path_factory.mktemp("phases") / "run"
    assert train.pretrain(load(finished[0]), run) == 0
    return finished[0], run


def test_a_larger_batch_has_more_micro_batches_of_the_same_size(phased_run):
    info = json.loads((phased_run[1] / "run.json").read_text())["phases"]
    assert [info[name]["micro_batches"] for name in BATCHES] == [1, 2, 4]
    assert {info[name]["rows_per_device"] for name in BATCHES} == {1}
    reports = [line for line in lines(phased_run[1]) if line["split"] == "train"]
    # A report every two steps and at the end of each phase: no report spans two phases.
    assert [line["step"] for line in reports] == [2, 3, 4, 6, 8, 9]
    rows = [round(line["rows_per_second"] * line["seconds"]) for line in reports]
    assert rows == [2 * 8, 8, 16, 2 * 16, 2 * 32, 32]
    phases = config.phases(load(phased_run[0]))
    rate = rate_of("sqrt", 1e-3, SMALL["schedule.warmup"], 9, decay=2, phases=phases)
    for line in reports:
        assert line["learning_rate"] == pytest.approx(float(rate(line["step"] - 1)), rel=1e-6)


# In a phase, and after one.
@pytest.mark.parametrize("step", [pytest.param(4, marks=pytest.mark.full), 6])
def test_a_run_that_continues_another_ends_with_the_same_bits(phased_run, tmp_path, step):
    """Also if it is killed after its first checkpoint, when the other run is gone, which it only reads."""
    settings, undisturbed = phased_run
    source = tmp_path / "source"
    checkpoints = tmp_path / "run/checkpoints"
    shutil.copytree(undisturbed, source)
    before = {path: path.is_file() and path.read_bytes() for path in source.rglob("*")}
    for is_killed in (False, True):
        if is_killed:
            assert before == {path: path.is_file() and path.read_bytes() for path in before}
            shutil.rmtree(source)
            for later in reader.steps(checkpoints)[:-1]:
                shutil.rmtree(checkpoints / str(later))
            (tmp_path / "run/summary.json").unlink()
        changes = {"continue_from": f"{source}@{step}"}
        assert train.pretrain(load(settings, **changes), tmp_path / "run") == 0
        assert reader.steps(checkpoints)[-1] == step
        assert fingerprints(tmp_path / "run", 9) == fingerprints(undisturbed, 9)


def fingerprints(run, step: int) -> dict:
    """Returns those of all parameters and of the optimizer's state."""
    return reader.read_manifest(run / f"checkpoints/{step}")


@pytest.mark.full
def test_another_decay_starts_from_the_same_steps(phased_run, tmp_path):
    """The undisturbed run decays in its last two steps, of which the first still has the peak."""
    settings, undisturbed = phased_run
    changes = {"continue_from": f"{undisturbed}@4", "schedule.decay": 1}
    assert train.pretrain(load(settings, **changes), tmp_path / "run") == 0
    same = [fingerprints(tmp_path / "run", n) == fingerprints(undisturbed, n) for n in (6, 8, 9)]
    assert same == [True, True, False]


def test_what_cannot_be_continued_is_refused(phased_run, tmp_path):
    settings, source = phased_run
    for key, value in (("seed", 1), ("continue_from", f"{source}@7"), ("continue_from", "x")):
        changes = {"continue_from": source} | {key: value}
        with pytest.raises(BadInput, match=f"config.{key}"):
            train.pretrain(load(settings, **changes), tmp_path / "run")
    assert not list(tmp_path.iterdir())


@pytest.mark.full
@pytest.mark.parametrize("optimizer", ["stable_adamw", "lamb", "muon"])
def test_a_run_with_a_mixture_that_is_killed_in_a_phase_ends_with_the_same_bits(
    finished, tmp_path, optimizer
):
    """The last two phases have one shape, and mixtures of their own. The held-out text of each source is evaluated."""
    texts = corpora.make_text(400)
    for name, documents in (("a", texts[:90]), ("b", texts[90:])):
        corpora.write(tmp_path / f"{name}.txt", documents)
    changes = {
        "store": tmp_path / "store",
        "corpus.source": f"a={tmp_path}/a.txt,b={tmp_path}/b.txt",
        "optimizer.name": optimizer,
        "task.mixture": "a:3",
        "phases.large.mixture": "tokens^0.5",
        "phases.large.length": 32,
        "phases.medium.schedule": "constant",
        "phases.medium.mask_rate": 0.3,
    }
    settings = load(finished[0], **changes)
    run = tmp_path / "run"
    assert train.pretrain(settings, run) == 0
    expected = fingerprints(run, 9)
    splits = {line["split"] for line in lines(run)}
    assert splits == {"train", "heldout", "heldout_a", "heldout_b"}
    for step in reader.steps(run / "checkpoints"):
        if step > 4:  # the second step of `medium`
            shutil.rmtree(run / f"checkpoints/{step}")
    (run / "summary.json").unlink()
    assert reader.steps(run / "checkpoints")[0] == 4
    assert train.pretrain(settings, run) == 0
    assert fingerprints(run, 9) == expected

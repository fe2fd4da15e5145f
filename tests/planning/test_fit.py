"""What makes a step fit that does not: which setting is tried when, and that it does."""

import json
import re

import pytest
from kits.plans import arguments, compile_nothing
from kits.slices import devices, needs_libtpu
from kits.small import VOCABULARY, small_config

from bert_jax.cli import main
from bert_jax.parallel import mesh as meshes
from bert_jax.planning import compilation, describe, fit, plan


@needs_libtpu
@pytest.mark.slow
def test_a_step_that_is_too_large(tmp_path, capsys):
    """The line says by how much, and which setting makes it fit: with it the same command is done."""
    rows = {"phases.main.batch": 2**19, "model.positions": 512, "phases.main.length": 512}
    rows["model.layers"] = 1
    cache = {"compilation_cache": tmp_path / "cache"}
    assert main(arguments(tmp_path, **rows, **cache)) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert "config.phases.main on v5e:2x2: needs " in error and "of the 15.75 GiB" in error
    changes = re.findall(r"--config\.(\S+)=(\S+)", error)
    assert [key for key, _ in changes] == ["train.rows_per_chip"]
    assert 1 <= int(changes[0][1]) < 2**17
    assert main(arguments(tmp_path, "--json", "-", **rows, **cache, **dict(changes))) == 0
    phase = json.loads(capsys.readouterr().out)["phases"]["main"]
    fits, seconds = re.search(r"fits: (\S+) GiB a chip, (\S+) s a step", error).groups()
    assert float(fits) == pytest.approx(phase["bytes_per_chip"] / 2**30, abs=0.01)
    assert 4 < float(fits) < 15.75
    assert float(seconds) == pytest.approx(phase["seconds_per_step"], rel=0.01)


class Memory:
    """A compiler that knows one number: bytes by rows at once, remat, and what fsdp splits."""

    def __init__(self, monkeypatch, needs):
        self.tried = []
        monkeypatch.setattr(compilation, "compile_step", self.compile)
        monkeypatch.setattr(plan, "compile_step", self.compile)
        self.needs = needs

    def compile(self, config, design, phase, tell):
        parts = meshes.micro_batches(design.mesh, phase.batch, config.train)
        rows = phase.batch // 4 // parts
        self.tried.append((rows, config.train.remat, design.mesh.shape["fsdp"]))
        if (used := self.needs(*self.tried[-1])) > 2**30:
            raise compilation.TooLarge(used, 2**30)
        return compile_nothing()


@needs_libtpu
@pytest.mark.parametrize(
    "needs, changes, most",
    [
        (lambda rows, remat, fsdp: rows * 2**24.9, {"train.rows_per_chip": 32}, 1),
        # Half of it is there at one row, too: the second guess knows more.
        (lambda rows, remat, fsdp: 2**29 + rows * 2**25, {"train.rows_per_chip": 16}, 2),
        (
            lambda rows, remat, fsdp: 2**31 if remat == "none" else rows * 2**24.9,
            {"train.remat": "attention", "train.rows_per_chip": 32},
            9,
        ),
        (lambda rows, remat, fsdp: 2**31 // fsdp, {"mesh.fsdp": 2, "mesh.data": -1}, 20),
    ],
)
def test_what_makes_it_fit_is_tried_in_order(monkeypatch, needs, changes, most):
    config = small_config("phases.main.batch=512")
    compiler = Memory(monkeypatch, needs)
    failed = compilation.TooLarge(needs(128, "none", 1), 2**30)
    phase = config.choose_phases(config, None)[0]
    found = fit.find(config, devices("v5e:2x2"), phase, VOCABULARY, failed, lambda line: None)
    assert found.changes == changes
    assert len(compiler.tried) <= most and len(set(compiler.tried)) == len(compiler.tried)


@needs_libtpu
def test_where_nothing_makes_it_fit_what_was_tried_is_told(monkeypatch, tmp_path, capsys):
    """The memory of a device is always full: of each kind of setting the last try."""
    compiler = Memory(monkeypatch, lambda *_: 2**31)
    changes = {
        "phases.main.batch": 4 * 6,
        "model.width": 30,
        "model.heads": 2,
        "train.remat": "full",
    }
    assert main(arguments(tmp_path, **changes)) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert {(1, "full", 1), (1, "full", 2)} < set(compiler.tried)
    rows = "--config.train.rows_per_chip=1"
    mesh = "--config.mesh.fsdp=2 --config.mesh.data=-1"  # four do not divide the width
    assert error.endswith(f"; nothing that was tried makes it fit: {rows}; {mesh} {rows}")


@needs_libtpu
def test_a_phase_that_does_not_fit_is_told_beside_one_that_does(monkeypatch, tmp_path, capsys):
    """As JSON and as text, then one line and exit code 2: of 32 rows of a device, twenty fit."""
    Memory(monkeypatch, lambda rows, *_: 2**30 * rows / 20)
    config, path = small_config("dtype=auto").to_dict(), tmp_path / "config.json"
    few = config["phases"].pop("main")
    config["phases"], config["phase_order"] = {"a": few, "b": few | {"batch": 128}}, ["a", "b"]
    path.write_text(json.dumps(config))
    assert main(["plan", "--config", str(path), "--topology", "v5e:2x2", "--json", "-"]) == 2
    out, err = capsys.readouterr()
    values = json.loads(out)
    few, many = values["phases"].values()
    assert few["fits"] and not many["fits"] and not values["fits"] and "hours" not in values
    assert many["bytes_per_chip"] == pytest.approx(1.6 * 2**30)
    assert many["advice"].startswith("--config.train.rows_per_chip=16 fits: ")
    told = f"{many['reason']}; {many['advice']}"
    assert err.splitlines()[-1] == f"bert-jax: config.phases.b on v5e:2x2: {told}"
    assert f"\nb: does not fit, {told}\n" in describe.describe(values)


@needs_libtpu
def test_what_is_advised_can_be_set(monkeypatch):
    """Of the two ways to say how many rows are computed at once, one."""
    config = small_config("phases.main.batch=512", "train.micro_batches=2")
    Memory(monkeypatch, lambda rows, *_: rows * 2**24.9)
    failed = compilation.TooLarge(64 * 2**24.9, 2**30)
    phase = config.choose_phases(config, None)[0]
    found = fit.find(config, devices("v5e:2x2"), phase, VOCABULARY, failed, lambda line: None)
    assert found.changes == {"train.rows_per_chip": 32, "train.micro_batches": 1}


@needs_libtpu
def test_a_state_that_is_too_large_is_not_compiled(monkeypatch):
    """Three times 4.5 million parameters of four bytes, in a memory of 40 MB: only split do they fit."""
    config = small_config("model.width=512", "model.layers=1")
    compiler = Memory(monkeypatch, lambda *_: 1)
    phase = config.choose_phases(config, None)[0]
    failed = compilation.TooLarge(2e8, 3e7)
    found = fit.find(config, devices("v5e:2x2"), phase, VOCABULARY, failed, lambda line: None)
    assert found.changes == {"mesh.fsdp": 2, "mesh.data": -1} and len(compiler.tried) == 1
    failed = compilation.TooLarge(2e8, 3e6)
    told = fit.find(config, devices("v5e:2x2"), phase, VOCABULARY, failed, lambda line: None)
    assert len(compiler.tried) == 1
    assert told[-1].startswith("--config.mesh.fsdp=4 ")
    assert told[-1].endswith(" (its state alone is too large)")

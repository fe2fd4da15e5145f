"""What makes a step fit that does not: which setting is tried when, and that it does."""

import json
import re

import pytest
from kits.plans import arguments, compile_nothing
from kits.slices import devices, needs_libtpu
from kits.small import VOCABULARY, small_config

from bert_jax import config as configs
from bert_jax.cli import main
from bert_jax.parallel import mesh as meshes
from bert_jax.planning import compilation, describe, memory_fit, plan

pytestmark = needs_libtpu


@pytest.mark.full
def test_the_advice_makes_a_step_fit_that_is_too_large(tmp_path, capsys):
    rows = {"phases.main.batch": 2**19, "model.positions": 512, "phases.main.length": 512}
    rows |= {"model.layers": 1, "compilation_cache": tmp_path / "cache"}
    assert main(arguments(tmp_path, **rows)) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert "config.phases.main" in error and "v5e:2x2" in error and "15.75 GiB" in error
    changes = dict(re.findall(r"--config\.(\S+)=(\S+)", error))
    assert changes.keys() == {"train.rows_per_chip"}
    assert main(arguments(tmp_path, "--json", "-", **rows, **changes)) == 0
    phase = json.loads(capsys.readouterr().out)["phases"]["main"]
    told = float(re.search(r"(\S+) GiB a chip", error)[1])
    assert told == pytest.approx(phase["bytes_per_chip"] / 2**30, abs=0.01) and 4 < told < 15.75


class Compiler:
    """Knows one number: the bytes of so many rows at once, a remat, and parts of fsdp, of the 2**30 that are there."""

    def __init__(self, monkeypatch, needs):
        self.tried, self.needs = [], needs
        for module in (compilation, plan):
            monkeypatch.setattr(module, "compile_step", self.compile)

    def compile(self, config, design, phase, tell):
        parts = meshes.micro_batches(design.mesh, phase.batch, config.train)
        self.tried.append(
            (phase.batch // 4 // parts, config.train.remat, design.mesh.shape["fsdp"])
        )
        if (used := self.needs(*self.tried[-1])) > 2**30:
            raise compilation.TooLarge(used, 2**30)
        return compile_nothing()


def find(failed, *changes):
    config = small_config("phases.main.batch=512", *changes)
    (phase,) = configs.phases(config)
    return memory_fit.find(config, devices("v5e:2x2"), phase, VOCABULARY, failed, lambda line: None)


def by_rows(rows, remat, fsdp):
    return rows * 2**24.9


def never_without_remat(rows, remat, fsdp):
    return 2**31 if remat == "none" else by_rows(rows, remat, fsdp)


def by_fsdp(rows, remat, fsdp):
    return 2**31 // fsdp


@pytest.mark.parametrize(
    "needs, given, changes, most",
    [
        (by_rows, (), {"train.rows_per_chip": 32}, 1),
        (never_without_remat, (), {"train.remat": "attention", "train.rows_per_chip": 32}, 9),
        (by_fsdp, (), {"mesh.fsdp": 2, "mesh.data": -1}, 20),
        # Of the two ways to say how many rows are computed at once, one may be set.
        (
            by_rows,
            ("train.micro_batches=2",),
            {"train.rows_per_chip": 32, "train.micro_batches": 1},
            1,
        ),
    ],
)
def test_settings_are_tried_in_order_and_none_twice(monkeypatch, needs, given, changes, most):
    compiler = Compiler(monkeypatch, needs)
    rows = 64 if given else 128
    failed = compilation.TooLarge(needs(rows, "none", 1), 2**30)
    assert find(failed, *given).changes == changes
    assert len(set(compiler.tried)) == len(compiler.tried) <= most


def test_where_nothing_fits_the_last_tries_are_named(monkeypatch, tmp_path, capsys):
    """Of each kind of setting: the rows of the mesh as it is, and of fsdp=2, since 4 does not divide the width."""
    compiler = Compiler(monkeypatch, lambda *_: 2**31)
    model = {"model.width": 30, "model.heads": 2, "train.remat": "full"}
    assert main(arguments(tmp_path, **{"phases.main.batch": 4 * 6}, **model)) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert {(1, "full", 1), (1, "full", 2)} < set(compiler.tried)
    assert error.count("--config.train.rows_per_chip=1") == 2
    assert "--config.mesh.fsdp=2 " in error and "fsdp=4" not in error


def test_a_phase_that_does_not_fit_stands_beside_one_that_does(monkeypatch, tmp_path, capsys):
    """Of 32 rows of a device, twenty fit: the plan is printed with advice, and the exit code is 2."""
    Compiler(monkeypatch, lambda rows, *_: 2**30 * rows / 20)
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
    assert "--config.train.rows_per_chip=16" in many["advice"]
    for text in (err.splitlines()[-1], describe.describe(values)):
        assert many["reason"] in text and many["advice"] in text

"""The search for settings that make a step fit or fast: which ones it tries, and that they do. The table of slices."""

import json
import re

import pytest
from kits.plans import arguments, compile_nothing, write_phases
from kits.slices import needs_libtpu
from kits.small import VOCABULARY, small_config

from bert_jax import config as configs
from bert_jax.cli import main
from bert_jax.parallel import chips
from bert_jax.parallel import mesh as meshes
from bert_jax.planning import compilation, describe, hlo, search, slices, timeline, topology
from bert_jax.runs.out_of_memory import TooLarge

pytestmark = needs_libtpu


@pytest.mark.full
def test_the_advised_settings_make_a_large_step_fit(tmp_path, capsys):
    rows = {"phases.main.batch": 2**17, "model.max_length": 512, "phases.main.length": 512}
    rows |= {"model.layers": 1, "compilation_cache": tmp_path / "cache"}
    assert main(arguments(tmp_path, **rows)) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert "config.phases.main" in error and "v5e:2x2" in error and "15.75 GiB" in error
    changes = dict(re.findall(r"--config\.(\S+)=(\S+)", error))
    assert main(arguments(tmp_path, "--json", "-", **rows | changes)) == 0
    phase = json.loads(capsys.readouterr().out)["phases"]["main"]
    advised = float(re.search(r"(\S+) GiB a chip", error)[1])
    assert advised == pytest.approx(phase["bytes_per_chip"] / 2**30, abs=0.01)
    assert 4 < advised < 15.75


class Compiler:
    """A fake compiler. needs(rows, remat, fsdp): the bytes of a step, of 2**30 available."""

    def __init__(self, monkeypatch, needs):
        self.tried, self.needs = [], needs
        monkeypatch.setattr(compilation, "compile_step", self.compile)

    def compile(self, job, tpu, mesh, phase):
        parts = meshes.micro_batches(mesh, phase, job.config.train)
        self.tried.append((phase.batch // 4 // parts, job.config.train.remat, mesh.shape["fsdp"]))
        if (used := self.needs(*self.tried[-1])) > 2**30:
            raise TooLarge(used, 2**30)
        return compile_nothing()


@pytest.mark.parametrize(
    "needs, advice",
    [
        (lambda rows, remat, fsdp: rows * 2**24.9, "train.micro_batches=4"),
        (lambda rows, remat, fsdp: 2**31 if remat == "none" else 9, "train.remat=attention"),
        (lambda rows, remat, fsdp: 2**31 // fsdp, "mesh.fsdp=2"),
    ],
)
def test_the_cheapest_setting_that_fits_is_advised(monkeypatch, tmp_path, capsys, needs, advice):
    compiler = Compiler(monkeypatch, needs)
    assert main(arguments(tmp_path, **{"phases.main.batch": 512, "mesh.fsdp": 1})) == 2
    assert f"{advice} fits" in capsys.readouterr().err.splitlines()[-1]
    assert len(set(compiler.tried)) == len(compiler.tried)


def test_nothing_is_advised_if_nothing_fits(monkeypatch, tmp_path, capsys):
    """The width is 30: over four chips, two shards."""
    compiler = Compiler(monkeypatch, lambda *_: 2**31)
    model = {"model.width": 30, "model.heads": 2, "train.remat": "full"}
    command = arguments(tmp_path, "--json", "-", **{"phases.main.batch": 64}, **model)
    assert main(command) == 2
    out, err = capsys.readouterr()
    assert "fits" not in err.splitlines()[-1].rpartition(";")[2] and "hours" not in json.loads(out)
    assert {(1, "full", 2), (16, "full", 1)} < set(compiler.tried)


def test_a_search_is_sorted_with_unfitting_settings_last(monkeypatch, tmp_path, capsys):
    Compiler(monkeypatch, lambda rows, remat, fsdp: 2**31 if remat == "full" else 9)
    command = arguments(tmp_path, "--search", "--json", "-", **{"phases.main.batch": 64})
    assert main(command) == 0
    table = json.loads(capsys.readouterr().out)["phases"]["main"]
    assert [row["settings"] for row in table if row["fits"]][0] == {}
    tried = [row["settings"] for row in table]
    expected = search.settings(small_config(), topology.find("v5e:2x2"))
    assert sorted(map(str, tried)) == sorted(map(str, expected))
    fitting = [row["seconds_per_step"] for row in table if row["fits"]]
    assert fitting == sorted(fitting) and not table[-1]["fits"]


def test_one_phase_fits_and_another_does_not(monkeypatch, tmp_path, capsys):
    """A device has 32 rows, and twenty fit: the plan is printed with advice, and the exit code is 2.

    There is a total only if the same settings are advised for all phases.
    """
    Compiler(monkeypatch, lambda rows, *_: 2**30 * rows / 20)
    path = write_phases(tmp_path / "config.json", a={}, b={"batch": 128})
    command = ["plan", "--config", str(path), "--topology", "v5e:2x2", "--json", "-"]
    assert main(command) == 2
    out, err = capsys.readouterr()
    values = json.loads(out)
    few, many = values["phases"].values()
    assert few["fits"] and not many["fits"] and not values["fits"]
    assert "hours" not in values and "total" not in describe.describe(values)
    assert many["bytes_per_chip"] == pytest.approx(1.6 * 2**30)
    assert "--config.train.micro_batches=2" in many["advice"]
    write_phases(path, a={"batch": 128}, b={"batch": 128})
    assert main(command) == 2
    both = json.loads(capsys.readouterr().out)
    assert both["hours"] == 2 * many["suggestion"]["hours"] > 0
    assert "total, phases that do not fit as advised: " in describe.describe(both)
    for text in (err.splitlines()[-1], describe.describe(values)):
        assert many["reason"] in text and many["advice"] in text


def test_the_state_is_sharded_as_far_as_it_divides():
    """Over 128 of 256 chips, by a vocabulary that is padded to a multiple of 128, or fewer by the width."""
    tpu, config = topology.find("v5e:16x16"), small_config("mesh.fsdp=1", "model.width=768")
    for width, most in ((768, 128), (32, 32)):
        config.model.width = width
        tried = [change.get("mesh.fsdp", 1) for change in search.settings(config, tpu)]
        assert max(tried) == tried[-1] == most


# --- The table of slices --------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize(
    ("fsdp", "least", "most", "gap"), [(1, 0.7, 1.1, 0.05), (-1, 0.45, 1.6, 0.6)]
)
def test_scaled_numbers_are_close_to_compiled_ones(fsdp, least, most, gap):
    """From 4 chips to 16, for a small model, whose parameter update is a large part of the step. If the state is
    sharded, the compiler chooses other collectives for 16 chips than for 4."""
    config = small_config("dtype=bfloat16", "model.width=128", f"mesh.fsdp={fsdp}")
    phase = configs.phases(config)[0]._replace(batch=1024)
    job = compilation.Job(config, [phase], VOCABULARY, {}, print, {})
    tpus = [topology.find(name) for name in ("v5e:2x2", "v5e:4x4")]
    small, large = (compilation.make_mesh(job, tpu) for tpu in tpus)
    step, compiled = (
        compilation.compile_step(job, tpu, mesh, phase)
        for tpu, mesh in zip(tpus, (small, large), strict=True)
    )
    scaled = slices.rescale(step, small, large)
    share = timeline.cycles(scaled.events) / timeline.cycles(compiled.events)
    assert least < share < most
    sent, expected = (sum(timeline.sent(s.events).values()) for s in (scaled, compiled))
    assert sent == pytest.approx(expected, rel=gap)


@pytest.mark.slow
def test_the_table_is_sorted_by_hours_and_names_skipped_slices(monkeypatch, tmp_path, capsys):
    """The compiler is fake. The batch is not divisible by one slice, and the second of the three does not fit."""
    compiled = []

    def compile_step(job, one, mesh, phase):
        compiled.append(mesh.size)
        if len(compiled) == len(chips.CHIPS) + 2:
            raise TooLarge(2**40, 2**30)
        cycles = 10**7 + 10**5 * phase.batch // mesh.size * phase.length
        return compilation.Step(hlo.Memory(10, 0, 0, 10), [["compute", cycles]])

    monkeypatch.setattr(compilation, "compile_step", compile_step)
    command = arguments(tmp_path, "--json", "-", topology="all", **{"phases.main.batch": 128})
    assert main(command) == 0
    values = json.loads(capsys.readouterr().out)
    table = values["slices"]
    names = {row["topology"] for row in table}
    assert "128" in values["left_out"]["v5e:16x16"]
    assert not names & values["left_out"].keys() and {"v5e:2x2", "v5p:2x2x1"} < names
    assert len(compiled) == len(chips.CHIPS) + slices.COMPILED
    assert {row["fits"] for row in table[slices.COMPILED :]} == {None}
    hours = [row["hours"] for row in table[slices.COMPILED :]]
    assert hours == sorted(hours)
    for row in table:
        assert row["chip_hours"] == pytest.approx(row["chips"] * row["hours"])
    (unfit,) = [row for row in table if row["fits"] is False]
    assert unfit["reason"] and table.index(unfit) == slices.COMPILED - 1

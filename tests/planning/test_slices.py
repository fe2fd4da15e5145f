"""The table of slices: by hours, the first compiled whole, and what is left out."""

import json

import pytest
from kits.plans import arguments
from kits.slices import devices, needs_libtpu
from kits.small import VOCABULARY, small_config

from bert_jax import build
from bert_jax import config as configs
from bert_jax.cli import main
from bert_jax.parallel import chips
from bert_jax.planning import compilation, hlo, slices, topology

pytestmark = needs_libtpu


@pytest.mark.full
def test_arithmetic_is_near_the_compiler():
    """From four chips to sixteen; of a small model, whose update of parameters is much of a step."""
    config = small_config("dtype=bfloat16", "model.width=128")
    phases = [configs.phases(config)[0]._replace(batch=1024)]
    found = []
    for name in ("v5e:2x2", "v5e:4x4"):
        mesh = build.make_mesh(config, phases, devices(name))
        one = topology.find(name)
        (step,) = slices.compiled(config, one, mesh, phases, VOCABULARY, lambda line: None)
        found.append((mesh, step))
    (small, step), (large, whole) = found
    there = slices.elsewhere(small, large, step)
    assert 0.5 * whole.cycles < there.cycles < 1.1 * whole.cycles
    assert sum(there.sent.values()) == pytest.approx(sum(whole.sent.values()), rel=0.05)


@pytest.mark.slow
def test_the_table_is_by_hours_and_says_what_is_left_out(monkeypatch, tmp_path, capsys):
    """By numbers made up, of a batch that does not divide over one slice; the second of the three does not fit."""
    compiled = []

    def compile_step(config, design, phase, tell):
        compiled.append(design.mesh.size)
        if len(compiled) == len(chips.CHIPS) + 2:
            raise compilation.TooLarge(2**40, 2**30)
        cycles = 10**7 + 10**5 * phase.batch // design.mesh.size * phase.length
        return compilation.Step(hlo.Memory(10, 0, 0, 0, 0), [["compute", cycles]])

    monkeypatch.setattr(compilation, "compile_step", compile_step)
    command = arguments(tmp_path, "--json", "-", "--price", "2", topology="all")
    assert main([*command, "--config.phases.main.batch=128"]) == 0
    values = json.loads(capsys.readouterr().out)
    table = values["slices"]
    names = {one["topology"] for one in table}
    assert "128" in values["left_out"]["v5e:16x16"]
    assert not names & values["left_out"].keys() and {"v5e:2x2", "v5p:2x2x1"} < names
    assert len(compiled) == len(chips.CHIPS) + slices.COMPILED
    assert {one["fits"] for one in table[slices.COMPILED :]} == {None}
    hours = [one["hours"] for one in table[slices.COMPILED :]]
    assert hours == sorted(hours)
    for one in table:
        assert one["chip_hours"] == pytest.approx(one["chips"] * one["hours"])
        assert one["cost"] == pytest.approx(2 * one["chip_hours"])
    (unfit,) = [one for one in table if one["fits"] is False]
    assert unfit["reason"] and table.index(unfit) == slices.COMPILED - 1

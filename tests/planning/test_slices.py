"""The table of slices: by hours, the first compiled whole, and what is left out."""

import json

import pytest
from kits.plans import arguments
from kits.slices import needs_libtpu
from kits.small import VOCABULARY, small_config

from bert_jax import config as configs
from bert_jax.cli import main
from bert_jax.parallel import chips
from bert_jax.planning import compilation, hlo, slices, timeline, topology
from bert_jax.runs.out_of_memory import TooLarge

pytestmark = needs_libtpu


@pytest.mark.full
def test_arithmetic_is_near_the_compiler():
    """From four chips to sixteen; of a small model, whose update of parameters is much of a step."""
    config = small_config("dtype=bfloat16", "model.width=128")
    phase = configs.phases(config)[0]._replace(batch=1024)
    job = compilation.Job(config, [phase], VOCABULARY, {}, print)
    places = [topology.find(name) for name in ("v5e:2x2", "v5e:4x4")]
    small, large = (compilation.make_mesh(job, one) for one in places)
    step, whole = (
        compilation.compile_step(job, one, mesh, phase)
        for one, mesh in zip(places, (small, large), strict=True)
    )
    there = slices.elsewhere(step, small, large)
    share = timeline.cycles(there.events) / timeline.cycles(whole.events)
    assert 0.7 < share < 1.1
    sent, expected = (sum(timeline.sent(found.events).values()) for found in (there, whole))
    assert sent == pytest.approx(expected, rel=0.05)


@pytest.mark.slow
def test_the_table_is_by_hours_and_says_what_is_left_out(monkeypatch, tmp_path, capsys):
    """By numbers made up, of a batch that does not divide over one slice; the second of the three does not fit."""
    compiled = []

    def compile_step(job, one, mesh, phase):
        compiled.append(mesh.size)
        if len(compiled) == len(chips.CHIPS) + 2:
            raise TooLarge(2**40, 2**30)
        cycles = 10**7 + 10**5 * phase.batch // mesh.size * phase.length
        return compilation.Step(hlo.Memory(10, 0, 0, 10), [["compute", cycles]])

    monkeypatch.setattr(compilation, "compile_step", compile_step)
    command = arguments(tmp_path, "--json", "-", topology="all")
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
    (unfit,) = [one for one in table if one["fits"] is False]
    assert unfit["reason"] and table.index(unfit) == slices.COMPILED - 1

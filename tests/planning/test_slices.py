"""The table of slices: sorted by hours, the first ones compiled, and those left out."""

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
@pytest.mark.parametrize(
    ("fsdp", "least", "most", "gap"), [(1, 0.7, 1.1, 0.05), (-1, 0.45, 1.6, 0.6)]
)
def test_scaled_numbers_are_close_to_compiled_ones(fsdp, least, most, gap):
    """From 4 chips to 16, for a small model, whose parameter update is a large part of the step. If the state is
    sharded, the compiler chooses other collectives for 16 chips than for 4."""
    config = small_config("dtype=bfloat16", "model.width=128", f"mesh.fsdp={fsdp}")
    phase = configs.phases(config)[0]._replace(batch=1024)
    job = compilation.Job(config, [phase], VOCABULARY, {}, print)
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
    """The compiler is fake. The batch does not divide over one slice, and the second of the three does not fit."""
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

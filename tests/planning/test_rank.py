"""Slices ranked and ways to train searched, from short stacks of layers."""

import json

import pytest
from kits.plans import arguments
from kits.slices import devices, needs_libtpu
from kits.small import VOCABULARY, small_config

from bert_jax import build
from bert_jax import config as configs
from bert_jax.cli import main
from bert_jax.planning import compilation, estimate, hlo, search, sketch, topology

pytestmark = needs_libtpu
PARTS = estimate.Parts(100, 60, 40, 5, 1000, 500, 0.25, {("all-reduce", ("data",)): 75})


@pytest.mark.full
def test_a_sketch_is_near_the_whole():
    config = small_config("dtype=bfloat16", "model.width=128", "model.layers=6")
    phase = configs.phases(config)[0]._replace(batch=256)
    one, places = topology.find("v5e:2x2"), devices("v5e:2x2")
    found = sketch.sketch(one, config, places, phase, VOCABULARY, lambda line: None)
    mesh = build.make_mesh(config, [phase], places)
    design = build.design(config, mesh, VOCABULARY)
    whole = estimate.parts(one, mesh, compilation.compile_step(config, design, phase))
    assert found.cycles == pytest.approx(whole.cycles, rel=0.1)
    assert found.arguments == pytest.approx(whole.arguments, rel=0.02)
    assert found.bytes == pytest.approx(whole.bytes, rel=0.25)
    assert sum(found.sent.values()) == pytest.approx(sum(whole.sent.values()), rel=0.02)


def ask(capsys, tmp_path, *more, **changes):
    assert main(arguments(tmp_path, "--json", "-", *more, **changes)) == 0
    return json.loads(capsys.readouterr().out)


def test_the_ranking_is_by_hours_and_says_what_is_left_out(monkeypatch, tmp_path, capsys):
    """A slice over which the batch does not divide."""

    def compile_step(config, design, phase, tell):
        cycles = 10**7 + 10**5 * phase.batch // design.mesh.size * phase.length
        return compilation.Step(hlo.Memory(10, 0, 0, 0, 0), [["compute", cycles]])

    monkeypatch.setattr(compilation, "compile_step", compile_step)
    changes = {"phases.main.batch": 128, "topology": "all"}
    values = ask(capsys, tmp_path, "--price", "2", **changes)
    slices = {one["topology"]: one for one in values["slices"]}
    assert "128" in values["left_out"]["v5e:16x16"]
    assert not slices.keys() & values["left_out"].keys() and {"v5e:2x2", "v5p:2x2x1"} < {*slices}
    hours = [one["hours"] for one in slices.values()]
    assert hours == sorted(hours)
    for one in slices.values():
        assert one["chip_hours"] == pytest.approx(one["chips"] * one["hours"])
        assert one["cost"] == pytest.approx(2 * one["chip_hours"])


def test_a_search_tries_meshes_then_ways_to_train(monkeypatch, capsys, tmp_path):
    """By numbers made up: fsdp=2 is the fastest that fits, then two micro-batches and no remat."""

    def made_up(one, config, places, phase, vocabulary, tell):
        mesh = build.make_mesh(config, [phase], places)
        count, remat = config.train.micro_batches, config.train.remat
        cycles = 1e9 * abs(mesh.shape["fsdp"] - 2.2) + 1e6 * (abs(count - 2) + (remat != "none"))
        return PARTS._replace(cycles=cycles, bytes=1e12 if mesh.shape["tensor"] == 4 else 1)

    monkeypatch.setattr(search, "sketch", made_up)
    changes = {"phases.main.batch": 64, "model.heads": 4}
    table = ask(capsys, tmp_path, "--search", **changes)["phases"]["main"]
    fitting = [row["seconds_per_step"] for row in table if row["fits"]]
    assert fitting == sorted(fitting) and len(table) == 6 + 12 - 1
    best = table[0]["settings"]
    assert (best["mesh.fsdp"], best["train.micro_batches"], best["train.remat"]) == (2, 2, "none")
    assert not table[-1]["fits"] and table[-1]["settings"]["mesh.tensor"] == 4

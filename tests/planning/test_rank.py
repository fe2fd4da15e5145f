"""Slices ranked and ways to train searched, from short stacks: beside whole steps, and by hand."""

import json

import pytest
from kits.plans import arguments
from kits.slices import devices, needs_libtpu
from kits.small import VOCABULARY, small_config

from bert_jax import build
from bert_jax.cli import main
from bert_jax.parallel import chips
from bert_jax.planning import (
    compilation,
    describe,
    estimate,
    hlo,
    rank,
    search,
    sketch,
    timeline,
    topology,
)

PARTS = estimate.Parts(100, 60, 40, 5, 1000, 500, 0.25, {("all-reduce", ("data",)): 75})


def silent(line):
    pass


def test_on_a_line():
    b = estimate.Parts(
        140, 70, 60, 5, 2000, 500, 0.0, {("all-reduce", ("data",)): 75, ("x", ("fsdp",)): 8}
    )
    assert sketch.between(PARTS, b, 0) == PARTS._replace(sent=PARTS.sent | {("x", ("fsdp",)): 0})
    assert sketch.between(PARTS, b, 1) == b
    beyond = sketch.between(PARTS, b, 2.5)
    assert (beyond.bytes, beyond.cycles, beyond.hidden) == (200, 3500, 0)
    assert beyond.sent == {("all-reduce", ("data",)): 75, ("x", ("fsdp",)): 20}


def test_micro_batches_are_as_the_compiler_makes_them():
    """What is in the loop over them happens in each, and what is not once."""
    send = ["send", [["all-reduce", ["data"], 40]]]
    inside = ["loop", 3, [["compute", 100], send, ["loop", 3, [["compute", 1]]]]]
    found = timeline.with_trips([["compute", 1000], inside, send, ["loop", 5, [send]]], 3, 8)
    assert timeline.cycles(found) == 1000 + 8 * (100 + 3)
    assert timeline.sent(found) == {("all-reduce", ("data",)): (8 + 1 + 5) * 40}


@needs_libtpu
def test_on_a_longer_ring_with_other_links():
    """A ring's share grows, one permutation's does not; what is hidden is by the seconds of the links there."""
    small, large, alone = map(topology.find, ("v5e:2x2", "v5e:16x16", "v5e:1x1"))
    slices = small, large, alone
    meshes = [build.make_mesh(small_config(), [], topology.devices(one)) for one in slices]
    sends = [["all-reduce", ["data"], 3e8], ["collective-permute", ["data"], 1e8]]
    events = [["loop", 2, [["start", "a", sends], ["compute", 1.5e9], ["done", "a"]]]]
    step = compilation.Step(hlo.Memory(1, 0, 0, 0, 0), events)
    stacks = sketch.Stacks(meshes[0], [step], 0.0)
    found, there, nowhere = (
        sketch.extrapolate(one, stacks.elsewhere(mesh))
        for one, mesh in zip(slices, meshes, strict=True)
    )
    ring, once = ("all-reduce", ("data",)), ("collective-permute", ("data",))
    assert found.sent == {ring: 6e8, once: 2e8} and nowhere.sent == {}
    assert there.sent[ring] == pytest.approx(6e8 / (3 / 4) * (255 / 256))
    assert there.sent[once] == 2e8
    for one, mesh, parts in zip(slices, meshes, (found, there), strict=False):
        seconds = sum(n / topology.bandwidth(one, mesh, *key) for key, n in parts.sent.items())
        assert parts.hidden == pytest.approx(seconds)
    assert nowhere.hidden == 0


@needs_libtpu
@pytest.mark.slow
def test_a_sketch_is_near_the_whole():
    config = small_config("dtype=bfloat16", "model.width=128", "model.layers=6")
    phase = config.choose_phases(config, None)[0]._replace(batch=256)
    one, places = topology.find("v5e:2x2"), devices("v5e:2x2")
    found = sketch.sketch(one, config, places, phase, VOCABULARY, silent)
    mesh = build.make_mesh(config, [phase], places)
    design = build.design(config, mesh, VOCABULARY)
    whole = estimate.parts(one, mesh, compilation.compile_step(config, design, phase))
    assert found.cycles == pytest.approx(whole.cycles, rel=0.1)
    assert found.arguments == pytest.approx(whole.arguments, rel=0.02)
    assert found.bytes == pytest.approx(whole.bytes, rel=0.25)
    assert sum(found.sent.values()) == pytest.approx(sum(whole.sent.values()), rel=0.02)


@needs_libtpu
@pytest.mark.slow
def test_micro_batches_of_a_ranking_are_those_of_the_whole():
    """Where parameters are split some gradients are summed over `data` in each of four, and some once."""
    config = small_config(
        "dtype=bfloat16",
        "mesh.fsdp=2",
        "mesh.tensor=2",
        "model.layers=1",
        f"phases.main.batch={4 * 4 * 32}",
        "train.rows_per_chip=32",
    )
    (phase,), one = config.choose_phases(config, None), topology.find("v5e:2x4")
    mesh = build.make_mesh(config, [phase], devices(one.name))
    design = build.design(config, mesh, VOCABULARY)
    whole = estimate.parts(one, mesh, compilation.compile_step(config, design, phase))
    alone = estimate.estimate(one, mesh, phase, whole, 1.0)
    found = rank.measure(config, [one], phase, rank.LOOP, {32}, VOCABULARY, silent)
    fills, lines = {"main": estimate.FULL}, [{rank.LOOP: found}]
    row = rank.row(config, one, mesh, [phase], lines, VOCABULARY, fills, None)
    ranked = row["phases"]["main"]
    assert ranked["sent_per_chip"] == pytest.approx(alone["sent_per_chip"], rel=0.01)
    for key in ("cycles", "bytes_per_chip", "seconds_per_step", "seconds_sending"):
        assert ranked[key] == pytest.approx(alone[key], rel=0.05), key


@needs_libtpu
@pytest.mark.slow
def test_slices_of_a_kind(tmp_path, capsys):
    """Those whose devices divide the batch; the one that was measured is as its own plan."""
    cache = {"compilation_cache": tmp_path / "cache", "phases.main.batch": 4 * 32}
    options = arguments(tmp_path, "--json", "-", "--price", "v5e=2", topology="v5e", **cache)
    assert main(options) == 0
    values = json.loads(capsys.readouterr().out)
    names = [one["topology"] for one in values["slices"]]
    assert sorted(names) == sorted(
        f"v5e:{shape}" for shape in chips.CHIPS["v5e"].shapes if shape != "16x16"
    )
    assert values["left_out"].keys() == {"v5e:16x16"}
    assert "batch=128: does not divide over 256 devices" in values["left_out"]["v5e:16x16"]
    hours = [one["hours"] for one in values["slices"]]
    assert hours == sorted(hours)
    for one in values["slices"]:
        assert one["cost"] == pytest.approx(2 * one["chip_hours"])
        assert one["chip_hours"] == pytest.approx(one["chips"] * one["hours"])
    # 1,024 tokens a chip are 32 rows: compiled for the ranking.
    assert main(arguments(tmp_path, "--json", "-", **cache)) == 0
    out, err = capsys.readouterr()
    alone = json.loads(out)["phases"]["main"]
    (ranked,) = (one for one in values["slices"] if one["topology"] == "v5e:2x2")
    for key in ("cycles", "bytes_per_chip", "sent_per_chip", "seconds_per_step"):
        assert ranked["phases"]["main"][key] == pytest.approx(alone[key])
    assert "compiling" not in err


@needs_libtpu
def test_a_search_tries_meshes_then_ways(monkeypatch, capsys, tmp_path):
    """By numbers made up: fsdp=2 is the fastest that fits, then two micro-batches and no remat."""
    tried = []

    def made_up(one, config, places, phase, vocabulary, tell):
        mesh = build.make_mesh(config, [phase], places)
        count, remat = config.train.micro_batches, config.train.remat
        tried.append((dict(mesh.shape), count, remat))
        cycles = 1e9 * abs(mesh.shape["fsdp"] - 2.2) + 1e6 * (abs(count - 2) + (remat != "none"))
        large = mesh.shape["tensor"] == 4
        return PARTS._replace(cycles=cycles / 10 if large else cycles, bytes=1e12 if large else 1)

    monkeypatch.setattr(search, "sketch", made_up)
    changes = {"phases.main.batch": 64, "model.heads": 4}
    assert main(arguments(tmp_path, "--search", "--json", "-", **changes)) == 0
    values = json.loads(capsys.readouterr().out)
    table = values["phases"]["main"]
    fitting = [row["seconds_per_step"] for row in table if row["fits"]]
    assert fitting == sorted(fitting)
    best = table[0]["settings"]
    assert (best["mesh.fsdp"], best["train.micro_batches"], best["train.remat"]) == (2, 2, "none")
    assert not table[-1]["fits"] and table[-1]["settings"]["mesh.tensor"] == 4
    assert len(table) == len(tried) == 6 + 12 - 1
    lines = describe.describe_search(values).splitlines()
    assert "GiB a chip" in lines[0] and f"{1e12 / 2**30:.2f}, may not fit" in lines[len(table)]
    assert "--config.mesh.fsdp=2 " in lines[1] and "may not fit" in lines[len(table)]


@needs_libtpu
def test_where_nothing_fits_ways_are_tried_where_least_is_held(monkeypatch):
    """Whether a sketch is too large, or the compiler said so: fsdp=2 and tensor=2 hold the least of a shape."""
    tried = []

    def made_up(one, config, places, phase, vocabulary, tell):
        mesh = build.make_mesh(config, [phase], places)
        tried.append((mesh.shape["fsdp"], mesh.shape["tensor"], config.train.remat))
        held = 1e11 * (1 + abs(mesh.shape["fsdp"] - 2) + abs(mesh.shape["tensor"] - 2))
        if mesh.shape["fsdp"] > 1:
            raise compilation.TooLarge(held, 1e10)
        return PARTS._replace(bytes=held)

    monkeypatch.setattr(search, "sketch", made_up)
    config, one = small_config("phases.main.batch=64", "model.heads=4"), topology.find("v5e:2x2")
    (phase,) = config.choose_phases(config, None)
    table = search.search(config, one, devices("v5e:2x2"), phase, VOCABULARY, estimate.FULL, silent)
    assert {way[:2] for way in tried if way[2] != "none"} == {(2, 2)}
    held = [row["bytes_per_chip"] for row in table]
    assert held == sorted(held) and held[0] == 1e11 and not any(row["fits"] for row in table)


@needs_libtpu
def test_a_sketch_that_is_too_large_says_what_all_layers_need(monkeypatch):
    """Of ten layers, by stacks of one and of three: one that fits and one that does not, then none that does."""

    def compile_step(config, design, phase, tell):
        memory = hlo.Memory(fixed + config.model.layers * 10, 0, 0, 0, 0)
        if memory.total > 100:
            raise compilation.TooLarge(memory.total, 100)
        return compilation.Step(memory, [])

    monkeypatch.setattr(compilation, "compile_step", compile_step)
    config, one = small_config("model.layers=10"), topology.find("v5e:2x2")
    (phase,) = config.choose_phases(config, None)
    for fixed in (80, 200):
        with pytest.raises(compilation.TooLarge) as error:
            sketch.sketch(one, config, devices("v5e:2x2"), phase, VOCABULARY, silent)
        assert (error.value.used, error.value.there) == (fixed + 100, 100)


@needs_libtpu
def test_a_compiler_that_fails_leaves_out_what_it_fails_on(monkeypatch, tmp_path, capsys):
    """The other ways to train, and the other slices, are in the tables."""

    def compile_step(config, design, phase, tell):
        if config.train.remat == "full" or design.mesh.devices.flat[0].device_kind == "TPU v4":
            raise compilation.Failed("the TPU compiler: it crashed (SIGSEGV) on phase main")
        return compilation.Step(hlo.Memory(10, 0, 0, 0, 0), [["compute", 9]])

    monkeypatch.setattr(compilation, "compile_step", compile_step)
    rows = {"phases.main.batch": 128}
    assert main(arguments(tmp_path, "--search", "--json", "-", **rows)) == 0
    table = json.loads(capsys.readouterr().out)["phases"]["main"]
    failed = [row for row in table if row["settings"]["train.remat"] == "full"]
    assert failed and all("crashed" in row["reason"] and not row["fits"] for row in failed)
    assert any(row["fits"] for row in table)
    assert main(arguments(tmp_path, "--json", "-", topology="all", **rows)) == 0
    values = json.loads(capsys.readouterr().out)
    assert "crashed" in values["left_out"]["v4:2x2x1"]
    assert {one["topology"] for one in values["slices"]} >= {"v5e:2x2", "v5p:2x2x1"}


@needs_libtpu
@pytest.mark.parametrize("options", [{"topology": "v2"}, ["--search"]])
def test_a_compiler_that_fails_on_all_is_not_bad_input(monkeypatch, tmp_path, capsys, options):
    """Nor is it where some slices were refused before."""

    def compile_step(config, design, phase, tell):
        raise compilation.Failed("the TPU compiler: it crashed (SIGSEGV) on phase main")

    monkeypatch.setattr(compilation, "compile_step", compile_step)
    changes, more = (options, []) if isinstance(options, dict) else ({}, options)
    assert main(arguments(tmp_path, *more, **{"phases.main.batch": 8}, **changes)) == 1
    assert capsys.readouterr().err.splitlines()[-1].count("crashed") == 1


@needs_libtpu
@pytest.mark.parametrize(
    "changes, words",
    [
        (
            {"model.attention": "splash"},
            "config.model.attention=splash: cannot do",
        ),
        (
            {"model.heads": 1, "phases.main.batch": 7},
            "phases.main.batch=7: does not divide over 4 devices",
        ),
    ],
)
def test_a_search_in_which_nothing_can_be_computed(monkeypatch, tmp_path, capsys, changes, words):
    """One line, before anything is compiled."""
    monkeypatch.setattr(search, "sketch", None)
    assert main(arguments(tmp_path, "--search", **changes)) == 2
    error = capsys.readouterr().err.strip()
    assert error.count(words) == 1 and "\n" not in error


def bent(tokens: int) -> int:
    """Cycles: four times as many a token beyond 8,192 a chip."""
    return 10**7 + 10**5 * (tokens + 3 * max(0, tokens - 8192))


def ranked(monkeypatch, capsys, tmp_path, compiler) -> dict:
    """1,024 rows of 32 on slices of v5e, from 256 chips to one, which computes 32,768 tokens at once."""

    def compile_step(config, design, phase, tell):
        return compiler(phase.batch // design.mesh.size * phase.length)

    monkeypatch.setattr(compilation, "compile_step", compile_step)
    rows = {"phases.main.batch": 1024}
    options = arguments(tmp_path, "--price", "1", "--json", "-", topology="v5e", **rows)
    assert main(options) == 0
    return json.loads(capsys.readouterr().out)


def step_of(cycles: int, held: int = 10) -> compilation.Step:
    return compilation.Step(hlo.Memory(held, 0, 0, 0, 0), [["compute", cycles]])


@needs_libtpu
def test_the_most_rows_that_fit_are_measured(monkeypatch, tmp_path, capsys):
    """A line through fewer would not see the bend. Between those that were measured is a line."""
    asked = []

    def compiler(tokens):
        asked.append(tokens)
        return step_of(bent(tokens))

    values = ranked(monkeypatch, capsys, tmp_path, compiler)
    assert set(asked) == {1024, 8192, 32768}
    assert not any(one["beyond_measured"] for one in values["slices"])
    for one in values["slices"]:
        seconds = one["phases"]["main"]["seconds_per_step"]
        assert seconds == pytest.approx(bent(32768 // one["chips"]) / 1.5e9)
    assert rank.along([1, 5, 9], [PARTS, PARTS, PARTS._replace(cycles=3000)], 7).cycles == 2000
    lines = describe.describe_all(values).splitlines()
    assert "fewest chip-hours: v5e:2x2" in lines and "cheapest: v5e:2x2" in lines


@needs_libtpu
@pytest.mark.parametrize("why", ["no room, by the line", "no room", "a crash"])
def test_slices_beyond_what_was_measured_are_not_the_cheapest(monkeypatch, tmp_path, capsys, why):
    """On a line the one would be that whose many rows could not be measured."""
    memory = chips.CHIPS["v5e"].memory

    def compiler(tokens):
        if tokens > 8192:
            assert why != "no room, by the line"
            raise (
                compilation.TooLarge(17, 16)
                if why == "no room"
                else compilation.Failed("it crashed")
            )
        held = memory * tokens / 32768 if why == "no room, by the line" else 10
        return step_of(bent(tokens), round(held))

    values = ranked(monkeypatch, capsys, tmp_path, compiler)
    first, last = values["slices"][0], values["slices"][-1]
    assert [one["topology"] for one in values["slices"] if one["beyond_measured"]] == ["v5e:1x1"]
    assert last["topology"] == "v5e:1x1" and first["topology"] == "v5e:16x16"
    assert last["chip_hours"] == min(one["chip_hours"] for one in values["slices"])
    assert last["fits"] == (why != "no room, by the line")
    lines = describe.describe_all(values).splitlines()
    assert "fewest chip-hours: v5e:2x2" in lines and "cheapest: v5e:2x2" in lines
    assert [line.split()[0] for line in lines if line.endswith("beyond what was measured")] == [
        "v5e:1x1"
    ]


@needs_libtpu
@pytest.mark.parametrize("layers", [3, 4])
def test_what_is_compiled_whole_is_not_extrapolated(monkeypatch, tmp_path, capsys, layers):
    """A step of 0.9 of a chip fits where the compiler said so of all its layers, and needs some to spare where not."""
    held = round(0.9 * chips.CHIPS["v5e"].memory)

    def compile_step(config, design, phase, tell):
        return compilation.Step(hlo.Memory(held, 0, 0, 0, 0), [["compute", 9]])

    monkeypatch.setattr(compilation, "compile_step", compile_step)
    one = {"topology": "v5e:1x1", "model.layers": layers}
    assert main(arguments(tmp_path, "--search", "--json", "-", **one)) == 0
    values = json.loads(capsys.readouterr().out)
    text = describe.describe_search(values)
    assert values["is_whole"] == (layers == 3)
    assert all(row["fits"] == (layers == 3) for row in values["phases"]["main"])
    assert ("stacks of 1 and 3 layers" in text) == (layers == 4)
    assert ("are the compiler's" in text) == (layers == 3)
    ranking = {"slices": [], "left_out": {}, "is_whole": values["is_whole"], "versions": {}}
    text = describe.describe_all(ranking)
    assert ("stacks of 1 and 3 layers" in text) == (layers == 4)
    assert "are the compiler's" not in text and "few rows" in text


def test_shapes_of_a_mesh():
    assert list(search.meshes(1)) == [{"mesh.data": -1, "mesh.fsdp": 1, "mesh.tensor": 1}]
    shapes = {(one["mesh.fsdp"], one["mesh.tensor"]) for one in search.meshes(8)}
    assert shapes == {(a, b) for a in (1, 2, 4, 8) for b in (1, 2, 4, 8) if a * b <= 8}


def test_a_search_is_of_one_slice(tmp_path, capsys):
    assert main(arguments(tmp_path, "--search", topology="all")) == 2
    assert "--search: is of one slice, not of --topology all" in capsys.readouterr().err

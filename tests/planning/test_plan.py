"""`plan`: a small step compiled for slices that are not here, and its arithmetic by hand."""

import json
import os
import shutil
import signal
import subprocess
import sys

import jax
import pytest
from kits.plans import MEMORY, arguments, compile_nothing
from kits.slices import devices, needs_libtpu
from kits.small import SMALL, overrides, small_config, write_corpus

from bert_jax import config
from bert_jax.cli import main
from bert_jax.parallel import chips
from bert_jax.parallel import mesh as meshes
from bert_jax.planning import child_process, compilation, describe, estimate, plan, topology
from bert_jax.runs import jax_setup


@needs_libtpu
def test_a_plan_from_outside(tmp_path):
    """Nothing on standard error but progress: libtpu has a lot to say."""
    command = [sys.executable, "-m", "bert_jax", *arguments(tmp_path, "--json", "-", "--price", 2)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr.splitlines() == ["compiling phase main for 4 x TPU v5 lite"]
    values = json.loads(done.stdout)
    assert values["accelerator_type"] == "v5litepod-4" and values["dtype"] == "bfloat16"
    assert (values["chips"], values["hosts"], values["mesh"]["data"]) == (4, 1, 4)
    phase = values["phases"]["main"]
    assert phase["fits"] and phase["sent_per_chip"].keys() == {"all-reduce"}
    assert 0 < values["encoder_parameters"] < values["parameters"]
    assert f", {values['encoder_parameters']:,} of the encoder; " in describe.describe(values)
    # Around a ring of four, each chip sends 2 x 3/4 of the gradients, in float32.
    gradients = 4 * values["parameters"]
    assert phase["sent_per_chip"]["all-reduce"] == pytest.approx(1.5 * gradients, rel=0.1)
    # Parameters and two moments, on every chip, and rows.
    assert phase["bytes_of_arguments"] > 3 * gradients
    # The rest are results that lie elsewhere than the state that they replace: numbers of the log.
    held = sum(phase[f"bytes_of_{part}"] for part in ("arguments", "temporaries", "program"))
    assert held <= phase["bytes_per_chip"] < held + 1e5
    assert values["hours"] == pytest.approx(20 * phase["seconds_per_step"] / 3600)
    assert values["cost"] == pytest.approx(2 * 4 * values["hours"])
    text = describe.describe(values)
    assert f"{phase['bytes_per_chip'] / 2**30:.2f} of 15.75 GiB a chip" in text
    assert "v5litepod-4" in text and "1 host," in text and "are the compiler's" in text


CHIP = chips.CHIPS["v5e"]


def numbers(one, mesh, phase, events):
    found = estimate.parts(one, mesh, compilation.Step(MEMORY, events))
    return estimate.estimate(one, mesh, phase, found, flops=1e12)


@needs_libtpu
def test_the_arithmetic():
    """A step that computes for 3 ms and sends for 1 ms along one line, hidden, and for 2 ms along two."""
    one = topology.find("v5e:4x4")
    mesh = meshes.make_mesh(small_config("mesh.fsdp=4").mesh, devices("v5e:4x4"))
    assert topology.bandwidth(one, mesh, "all-gather", ("fsdp",)) == CHIP.link
    assert topology.bandwidth(one, mesh, "all-reduce", ("data", "fsdp")) == 2 * CHIP.link
    events = [
        ["start", "a", [["all-gather", ["fsdp"], round(0.001 * CHIP.link)]]],
        ["compute", round(0.002 * CHIP.hertz)],
        ["kernel", round(0.001 * CHIP.hertz)],
        ["done", "a"],
        ["send", [["all-reduce", ["data", "fsdp"], round(0.002 * 2 * CHIP.link)]]],
    ]
    phase = config.choose_phases(small_config(), None)[0]
    values = numbers(one, mesh, phase, events)
    assert values["seconds_computing"] == pytest.approx(0.003)
    assert values["seconds_of_kernels"] == pytest.approx(0.001)
    assert values["seconds_sending"] == pytest.approx(0.003)
    by_kind = {"all-gather": 0.001, "all-reduce": 0.002}
    assert values["seconds_sending_by_kind"] == pytest.approx(by_kind)
    more = {"attention": "xla", "seconds_planning": 0.0}
    text = "\n".join(describe.describe_phase("main", values | more, CHIP.memory))
    assert "(all-gather 50 MB 0.001 s, all-reduce 200 MB 0.002 s)" in text
    assert values["seconds_hidden"] == pytest.approx(0.001)
    assert values["seconds_per_step"] == pytest.approx(0.005)
    assert values["seconds_per_step_all_hidden"] == pytest.approx(0.003)
    assert values["seconds_per_step_none_hidden"] == pytest.approx(0.006)
    assert values["rows_per_second"] == pytest.approx(16 / 0.005)
    assert values["tokens_per_second_all_hidden"] == pytest.approx(16 * 32 / 0.003)
    assert values["utilization_none_hidden"] == pytest.approx(1e12 / 0.006 / 16 / 197e12)
    # A range is from the smaller to the larger, also where it is the better one.
    assert "0.005 (0.003 to 0.006) s a step, 3,200 (2,667 to 5,333) rows/s" in text
    assert "2.78e-05 (1.67e-05 to 3.33e-05) hours for 20 steps" in text
    assert values["hours"] == pytest.approx(20 * 0.005 / 3600)
    assert values["bytes_per_chip"] == 10 + 9 - 8 + 7 + 6
    both = estimate.total(one, [values, values], price=1.5)
    assert both["cost"] == pytest.approx(2 * 1.5 * 16 * values["hours"])
    assert estimate.total(one, [values], price=None)["cost"] is None


@needs_libtpu
def test_what_is_waited_for_is_not_hidden():
    """Not even the last bit of a sum of seconds in another order."""
    mesh = meshes.make_mesh(small_config().mesh, devices("v5e:4x4"))
    one, found = topology.find("v5e:4x4"), []
    for bytes_sent in range(1000, 1010):
        sent = ["send", [["all-reduce", ["data"], bytes_sent]]]
        events = [["compute", 777], sent] * 9
        found.append(estimate.parts(one, mesh, compilation.Step(MEMORY, events)).hidden)
    assert found == [0.0] * 10


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """(a directory with a store, the fill of its first batch)."""
    place = tmp_path_factory.mktemp("stored")
    write_corpus(place / "corpus.txt", documents=60)
    source = {"corpus.source": place / "corpus.txt", "store": place / "store"}
    keys = [f"--config.{key}" for key in overrides(SMALL | source)]
    shown = ["inspect", "--config", "demo", *keys, "--step", "0", "--json", str(place / "shown")]
    assert main(shown) == 0
    return place, json.loads((place / "shown").read_text())["fill"]


def crash(*_):
    os.kill(os.getpid(), signal.SIGSEGV)


@needs_libtpu
def test_real_tokens_are_those_of_the_store(stored, capsys, monkeypatch):
    """As many as a batch of the store holds, about; and all where there is no store."""
    tmp_path, shown = stored
    monkeypatch.setattr(plan, "compile_step", compile_nothing)
    for place, fill in (("store", shown), ("nowhere", 1)):
        assert main(arguments(tmp_path, "--json", "-", store=tmp_path / place)) == 0
        phase = json.loads(capsys.readouterr().out)["phases"]["main"]
        assert phase["fill"] == pytest.approx(fill, abs=0.1) and (place == "store") == (
            phase["fill"] < 1
        )
        real = phase["fill"] * 32 * phase["rows_per_second"]
        assert phase["tokens_per_second"] == pytest.approx(real)
        assert phase["fill_from"] == (str(tmp_path / "store") if fill < 1 else "full rows")


@needs_libtpu
def test_so_they_are_in_tables(stored, capsys, monkeypatch):
    """Of slices, and of ways to train."""
    monkeypatch.setattr(compilation, "compile_step", compile_nothing)
    place, shown = stored
    slices = ask(capsys, arguments(place, "--json", "-", topology="v5e"))["slices"]
    found = [one["phases"]["main"] for one in slices]
    table = ask(capsys, arguments(place, "--search", "--json", "-"))["phases"]["main"]
    found += [row for row in table if "reason" not in row]
    assert len(slices) > 2 and len(found) > len(slices) + 2
    for numbers in found:
        assert numbers["fill"] == pytest.approx(shown, abs=0.1) and numbers["fill"] < 1
        assert numbers["fill_from"] == str(place / "store")
        real = numbers["fill"] * 32 * numbers["rows_per_second"]
        assert numbers["tokens_per_second"] == pytest.approx(real)


def ask(capsys, command):
    assert main(command) == 0
    return json.loads(capsys.readouterr().out)


@needs_libtpu
@pytest.mark.parametrize("more", [[], ["--search"], "v5e"])
def test_a_damaged_store_is_told_before_minutes_of_compiling(
    stored, tmp_path, capsys, monkeypatch, more
):
    monkeypatch.setattr(compilation, "compile_apart", None)
    shutil.copytree(stored[0] / "store", tmp_path / "store")
    tokens = tmp_path / "store/train/tokens.npy"
    tokens.write_bytes(tokens.read_bytes()[:-2])
    options = arguments(tmp_path, *more) if more != "v5e" else arguments(tmp_path, topology=more)
    assert main(options) == 2
    error = capsys.readouterr().err.strip()
    assert f"{tokens}: " in error and "\n" not in error


@needs_libtpu
def test_a_chip_of_two_devices():
    one = topology.find("v3:2x2")
    mesh = meshes.make_mesh(small_config().mesh, topology.devices(one))
    events = [["compute", 940], ["send", [["all-reduce", ["data"], 41_000]]]]
    phase = config.choose_phases(small_config(), None)[0]
    values = numbers(one, mesh, phase, events)
    assert values["bytes_per_chip"] == 2 * 24 and values["sent_per_chip"]["all-reduce"] == 82_000
    assert values["seconds_sending"] == pytest.approx(82_000 / 41e9)
    assert values["seconds_computing"] == pytest.approx(1e-6)


@needs_libtpu
def test_what_was_compiled_is_kept(tmp_path, monkeypatch, capsys):
    """Neither arithmetic nor a name of a config make a program another; what makes it another is compiled."""
    cache = {"compilation_cache": tmp_path / "cache"}
    assert main(arguments(tmp_path, "--json", "-", **cache)) == 0
    out, err = capsys.readouterr()
    assert "compiling phase main" in err
    first = json.loads(out)
    monkeypatch.setattr(compilation, "compile_apart", None)
    assert main(arguments(tmp_path, "--json", "-", "--price", 3, **cache)) == 0
    out, err = capsys.readouterr()
    again = json.loads(out)
    assert not err and again["cost"] > 0
    for values in (first, again):
        values["phases"]["main"].pop("seconds_planning")
    assert first["phases"] == again["phases"]
    for changes in ({"model.layers": 3}, {"phases.main.batch": 32}, {"topology": "v6e:2x2"}):
        with pytest.raises(TypeError):
            main(arguments(tmp_path, **changes, **cache))


@needs_libtpu
@pytest.mark.parametrize("variable", ["JAX_COMPILATION_CACHE_DIR", "XDG_CACHE_HOME"])
def test_where_it_is_kept(tmp_path, monkeypatch, capsys, variable):
    """JAX's own variable comes first; a place that cannot be used is told, and what is said there not believed."""
    monkeypatch.setattr(compilation, "compile_apart", compile_nothing)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "here"))
    monkeypatch.setenv(variable, str(tmp_path / "own"))
    command = arguments(tmp_path, compilation_cache="auto")
    place = tmp_path / ("own" if variable.startswith("JAX") else "own/bert_jax")
    for lines in (["compiling phase main for 4 x TPU v5 lite"], []):
        assert main(command) == 0
        assert capsys.readouterr().err.splitlines() == lines
    assert len(list((place / "plans").iterdir())) == 1 and not (tmp_path / "here").exists()
    (tmp_path / "file").touch()
    monkeypatch.setenv(variable, str(tmp_path / "file/{cache}"))
    assert main(command) == 0
    progress, told = capsys.readouterr().err.splitlines()
    assert told.startswith(f"{tmp_path}/file/{{cache}}")
    assert told.endswith(": Not a directory: what the compiler says is not kept")


@needs_libtpu
def test_a_place_that_fills_is_told(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(compilation, "compile_apart", compile_nothing)
    (tmp_path / "plans").touch()
    assert main(arguments(tmp_path, compilation_cache=tmp_path)) == 0
    _, told = capsys.readouterr().err.splitlines()
    assert told == f"{tmp_path}: File exists: what the compiler says is not kept"


def test_an_address_is_no_place_for_it(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "gs://bucket/programs")
    assert jax_setup.beside_programs(small_config())[1] == "an address"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "text, used, there",
    [
        ("RESOURCE_EXHAUSTED: Used 20.50G of 15.75G hbm. Exceeded by 4.75G.", 20.5, 15.75),
        ("for HLO temporaries (1.00T) exceeds available HBM (512.00M).", 1024, 0.5),
    ],
)
def test_what_does_not_fit(text, used, there):
    error = compilation.explain(jax.errors.JaxRuntimeError(text))
    assert isinstance(error, compilation.TooLarge)
    assert (error.used, error.there) == (used * 2**30, there * 2**30)
    assert f"needs {used:.2f} GiB of the {there:.2f} GiB" in str(error)
    assert f"{used - there:.2f} too many" in str(error)


@needs_libtpu
def test_a_compiler_that_fails_ends_in_one_line(tmp_path, monkeypatch, capsys):
    def fail(*_):
        raise jax.errors.JaxRuntimeError("INTERNAL: a shape\nof many\nlines")

    monkeypatch.setattr(jax.stages.Lowered, "compile", fail)
    monkeypatch.setattr(child_process, "call", lambda function, *arguments: function(*arguments))
    assert main(arguments(tmp_path)) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error == ("bert-jax: the TPU compiler: JaxRuntimeError: INTERNAL: a shape of many lines")


@needs_libtpu
def test_a_compiler_that_crashes_ends_in_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(compilation, "compile_here", crash)
    assert main(arguments(tmp_path)) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error == "bert-jax: the TPU compiler: it crashed (SIGSEGV) on phase main"


@pytest.mark.parametrize(
    "options, words",
    [
        ({"topology": "v5e:5x5"}, "--topology v5e:5x5: v5e comes as 1x1 "),
        ({"mesh.data": 3}, "data=3 fsdp=1 tensor=1 does not fit 4 devices"),
        ({"phases.main.batch": 10}, "phases.main.batch=10: does not divide over 4 devices"),
        (["--phase", "long"], "--phase long: the config has main"),
        (["--price", "free"], "--price: free: expected a number from 0, or v5e=1.2"),
        (["--price", "-1"], "--price: -1: expected a number from 0"),
        (["--price", "v9=1"], "--price v9: no chip; they are v2, v3,"),
        (["--price", "1,2"], "--price: 1,2: expected a number from 0, or v5e=1.2"),
        (["--price", "v5e=1,v5e=2"], "--price: v5e=1,v5e=2: expected a number"),
        (["--price", "v4=1,v6e=2.7"], "--price: of v4, v6e, none of v5e"),
        (["--price", "1", "--search"], "--price: not of --search"),
        ({"topology": "v5e", "mesh.data": 3}, "v5e:1x1: config.mesh: data=3 fsdp=1 tensor=1 does"),
    ],
)
@needs_libtpu
def test_what_cannot_be_planned(tmp_path, monkeypatch, capsys, options, words):
    monkeypatch.setattr(plan, "compile_step", None)  # refused before anything is compiled
    changes, more = (options, []) if isinstance(options, dict) else ({}, options)
    assert main(arguments(tmp_path, *more, **changes)) == 2
    error = capsys.readouterr().err.strip()
    assert words in error and "\n" not in error
    assert not list(tmp_path.iterdir())

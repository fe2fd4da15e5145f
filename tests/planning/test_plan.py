"""`plan`: a small step compiled for slices that are not attached, and its arithmetic checked by hand."""

import json
import os
import signal
import subprocess
import sys

import pytest
from kits import programs, runs
from kits.malformed_inputs import refused
from kits.plans import MEMORY, arguments, compile_nothing, write_phases
from kits.slices import compiling, needs_libtpu
from kits.small import VOCABULARY, small_config

from bert_jax import config as configs
from bert_jax.cli import main
from bert_jax.layers import embeddings
from bert_jax.parallel import chips
from bert_jax.planning import compilation, describe, estimate, plan, topology

pytestmark = needs_libtpu
CHIP = chips.CHIPS["v5e"]


@pytest.mark.slow
def test_the_numbers_of_a_plan_are_consistent(tmp_path):
    """Standard error contains only progress, and no output of libtpu."""
    options = arguments(tmp_path, "--json", "-", "--price", 2, **{"mesh.fsdp": 1})
    command = [sys.executable, "-m", "bert_jax", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr.count("\n") == 1
    values = json.loads(done.stdout)
    assert values["accelerator_type"] == "v5litepod-4" and values["dtype"] == "bfloat16"
    assert (values["chips"], values["hosts"], values["mesh"]["data"]) == (4, 1, 4)
    phase = values["phases"]["main"]
    assert phase["fits"] and phase["sent_per_chip"].keys() == {"all-reduce"}
    # In a ring of four, each chip sends 2 x 3/4 of the float32 gradients.
    gradients = 4 * values["parameters"]
    assert phase["sent_per_chip"]["all-reduce"] == pytest.approx(1.5 * gradients, rel=0.1)
    # Every chip holds the parameters, two moments and its rows.
    assert phase["bytes_of_arguments"] > 3 * gradients
    # The rest is results that are not part of the state: the metrics.
    used = sum(phase[f"bytes_of_{part}"] for part in ("arguments", "temporaries", "program"))
    assert used <= phase["bytes_per_chip"] < used + 1e5
    assert values["hours"] == pytest.approx(20 * phase["seconds_per_step"] / 3600)
    assert values["cost"] == pytest.approx(2 * 4 * values["hours"])
    text = describe.describe(values)
    assert f"{phase['bytes_per_chip'] / 2**30:.2f} of 15.75 GiB" in text and "v5litepod-4" in text


def estimated(name, events, *keys):
    one, config = topology.find(name), small_config(*keys)
    phase = configs.phases(config)[0]
    work = plan.expected_work(config, [phase], VOCABULARY, None)
    job = compilation.Job(config, [phase], VOCABULARY, work, print, {})
    mesh = compilation.make_mesh(job, one)
    return estimate.estimate(job, one, mesh, phase, compilation.Step(MEMORY, events))


@pytest.mark.full
@pytest.mark.parametrize("name, chips", [("v5e:2x2", 4), ("v5e:4x4", 16)])
def test_a_slice_shards_the_state_and_gathers_it_in_the_dtype_of_the_compute(name, chips):
    config = configs.load("bert_tiny", ["dtype=bfloat16"])
    phase = configs.phases(config)[0]
    job = compilation.Job(config, [phase], VOCABULARY, {}, print, {})
    mesh = compilation.make_mesh(job, topology.find(name))
    assert dict(mesh.shape) == {"data": 1, "fsdp": chips, "tensor": 1}
    with compiling():
        text = compilation.lower(job, mesh, phase).compile().as_text()
    gathered = [c.array for c, _ in programs.collectives(text, mesh) if c.kind == "all-gather"]
    table = embeddings.padded_size(VOCABULARY.size), config.model.width
    assert {array.dtype for array in gathered} == {"bf16"}
    assert table in {array.shape for array in gathered}


def test_times_of_a_step_equal_a_calculation_by_hand():
    """The step computes for 3 ms, sends for 1 ms along one axis, overlapped, and for 2 ms along two."""
    values = estimated(
        "v5e:4x4",
        [
            ["start", "a", [["all-gather", ["fsdp"], round(0.001 * CHIP.link)]]],
            ["compute", round(0.002 * CHIP.hertz)],
            ["roofline", round(0.001 * CHIP.hertz)],
            ["done", "a"],
            ["send", [["all-reduce", ["data", "fsdp"], round(0.002 * 2 * CHIP.link)]]],
        ],
        "mesh.fsdp=4",
    )
    expected = {
        "seconds_computing": 0.003,
        "seconds_by_roofline": 0.001,
        "seconds_sending": 0.003,
        "seconds_sending_by_kind": {"all-gather": 0.001, "all-reduce": 0.002},
        "seconds_hidden": 0.001,
        "seconds_per_step": 0.005,
        "seconds_per_step_all_hidden": 0.003,
        "seconds_per_step_none_hidden": 0.0065,
        "rows_per_second": 16 / 0.005,
        "tokens_per_second_all_hidden": 16 * 32 / 0.003,
        "utilization_none_hidden": values["flops_per_step"] / 0.0065 / 16 / 197e12,
        "hours": 20 * 0.005 / 3600,
        "bytes_per_chip": 24,
    }
    for key, value in expected.items():
        assert values[key] == pytest.approx(value), key
    both = estimate.total(topology.find("v5e:4x4"), [values, values], price=1.5)
    assert both["cost"] == pytest.approx(2 * 1.5 * 16 * values["hours"])


def test_real_tokens_are_those_of_the_store(finished, tmp_path, capsys, monkeypatch):
    """The share is about that of the run's batches; without a store it is 1."""
    monkeypatch.setattr(compilation, "compile_step", compile_nothing)
    settings, workdir = finished
    logged = [line["real_token_share"] for line in runs.lines(workdir) if line["split"] == "train"]
    for store, share in ((settings["store"], sum(logged) / len(logged)), (tmp_path / "none", 1)):
        assert main(arguments(tmp_path, "--json", "-", store=store)) == 0
        phase = json.loads(capsys.readouterr().out)["phases"]["main"]
        assert phase["real_token_share"] == pytest.approx(share, abs=0.1)
        assert (share == 1) == (phase["real_token_share"] == 1)
        assert ("a document" in phase["real_token_share_from"]) == (share != 1)
        real = phase["real_token_share"] * 32 * phase["rows_per_second"]
        assert phase["tokens_per_second"] == pytest.approx(real)


@pytest.mark.parametrize("tokens, steps", [(2.1e6, [2051, 2051]), (1, [1, 1])])
def test_steps_follow_from_tokens(tmp_path, capsys, monkeypatch, tokens, steps):
    """The phases have 10 steps each of 512 tokens. Hours and cost follow, too."""
    monkeypatch.setattr(compilation, "compile_step", compile_nothing)
    path = write_phases(tmp_path / "config.json", a={"steps": 10}, b={"steps": 10})
    store = f"--config.store={tmp_path}/none"  # not one of this directory
    options = ["--config", str(path), "--topology", "v5e:2x2", "--json", "-", store]
    assert main(["plan", *options, "--tokens", str(tokens)]) == 0
    values = json.loads(capsys.readouterr().out)
    phases = [*values["phases"].values()]
    assert [phase["steps"] for phase in phases] == steps
    assert [phase["tokens"] for phase in phases] == [512 * count for count in steps]
    assert values["tokens"] == 512 * sum(steps)
    assert values["hours"] == pytest.approx(sum(steps) * phases[0]["seconds_per_step"] / 3600)
    assert f"total: {values['tokens']:,.0f} tokens" in describe.describe(values)
    assert main(["plan", *options, "--tokens", "1e30"]) == 2
    assert "--tokens 1e+30: " in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["inverse_sqrt", "sqrt"])
def test_a_program_does_not_depend_on_the_number_of_steps(tmp_path, schedule):
    """So its cached estimates are those of all numbers of steps."""
    texts = set()
    for steps, warmup in ((10, 3), (70, 20)):
        path = write_phases(tmp_path / "config.json", a={"steps": steps}, b={"steps": 2 * steps})
        keys = ["dtype=float32", f"schedule.name={schedule}", f"schedule.warmup={warmup}"]
        if schedule == "sqrt":
            keys.append(f"schedule.decay={steps}")
        config = configs.load(str(path), keys)
        phase = configs.phases(config)[1]
        job = compilation.Job(config, [phase], VOCABULARY, {}, print, {})
        mesh = compilation.make_mesh(job, topology.find("v5e:2x2"))
        texts.add(compilation.lower(job, mesh, phase).as_text())
    assert len(texts) == 1


@pytest.mark.full
def test_compiled_steps_are_cached(tmp_path, monkeypatch, capsys):
    """The cache is in JAX's own directory, if that is writable. A price reuses an entry, a new batch size does not."""
    compiled = []

    def compile_in_subprocess(*_):
        compiled.append(1)
        return compile_nothing()

    monkeypatch.setattr(compilation, "compile_in_subprocess", compile_in_subprocess)
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "own"))
    for more, changes, count in (
        ([], {}, 1),
        (["--price", 3], {}, 1),
        (["--tokens", 3e9], {}, 1),
        ([], {"phases.main.steps": 30, "schedule.warmup": 9}, 1),
        ([], {"phases.main.batch": 32}, 2),
    ):
        command = arguments(tmp_path, *more, compilation_cache="auto", **changes)
        assert main(command) == 0
        assert len(compiled) == len(list((tmp_path / "own/plans").iterdir())) == count
    (tmp_path / "file").touch()
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "file/cache"))
    capsys.readouterr()
    assert main(command) == 0 and len(compiled) == 3
    assert f"{tmp_path}/file/cache" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "[]", "[[1], []]", "[null, [1]]", "[null, null]", "[3, []]"])
def test_a_damaged_entry_is_compiled_again(tmp_path, monkeypatch, text):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path))
    config = small_config("compilation_cache=auto")
    job = compilation.Job(config, configs.phases(config), VOCABULARY, {}, print, {})
    mesh = compilation.make_mesh(job, topology.find("v5e:2x2"))
    request = job, "program", mesh, compile_nothing
    step = compilation.read_or_compile(*request)
    [entry] = (tmp_path / "plans").iterdir()
    cached = entry.read_text()
    entry.write_text(text)
    assert compilation.read_or_compile(*request) == step and entry.read_text() == cached


def crash(*_):
    os.kill(os.getpid(), signal.SIGSEGV)


@pytest.mark.slow
def test_a_compiler_crash_is_reported_in_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(compilation, "compile_here", crash)
    assert main(arguments(tmp_path)) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("bert-jax: ") and "crashed" in error and "phase main" in error


@pytest.mark.parametrize(
    "more, changes, words",
    [
        ([], {"topology": "v5e:5x5"}, "--topology v5e:5x5"),
        ([], {"mesh.data": 3}, "data=3 fsdp=1 tensor=1"),
        ([], {"phases.main.batch": 10}, "phases.main.batch=10"),
        (["--phase", "long"], {}, "--phase long"),
        (["--price", "1"], {"topology": "all"}, "--price"),
        (["--price", "nan"], {}, "--price: nan"),
        (["--tokens", "0"], {}, "--tokens: 0"),
        (["--tokens", "3 billion"], {}, "--tokens: 3 billion"),
        (["--search"], {"topology": "all"}, "--search"),
        (["--search"], {"model.attention": "splash"}, "config.model.attention=splash"),
    ],
)
def test_bad_input_is_refused_before_compiling(tmp_path, monkeypatch, more, changes, words):
    monkeypatch.setattr(compilation, "compile_in_subprocess", None)
    assert words in refused(*arguments(tmp_path, *more, **changes))
    assert not list(tmp_path.iterdir())

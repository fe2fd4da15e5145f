"""The numbers of `benchmark` are of the program that trains, and nothing but the config is needed."""

import json

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache
from kits.saved_world import World
from kits.small import SMALL, VOCABULARY, overrides, small_config, write_corpus
from kits.traces import traced_steps

from bert_jax import build
from bert_jax import config as configs
from bert_jax.cli import main
from bert_jax.commands import benchmark
from bert_jax.data import vocabulary_file
from bert_jax.errors import BadInput
from bert_jax.models import bert
from bert_jax.parallel import chips
from bert_jax.parallel import mesh as meshes
from bert_jax.runs import jax_setup, metrics
from bert_jax.tokenizers import tokenizer


def time(config, batches="synthetic", phase=None, steps=3):
    return benchmark.benchmark(config, batches, phase, steps, lambda line: None)


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    """Of a store that is not there."""
    return small_config(f"store={tmp_path_factory.mktemp('empty')}/store")


@pytest.fixture(scope="module")
def measured(config):
    return time(config)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    made = World(tmp_path_factory.mktemp("world"))
    made.save(2, 8, made.saved)
    return made


def test_the_numbers_fit_one_another(config, measured):
    numbers = measured["phases"]["main"]
    vocabulary = vocabulary_file.likely_vocabulary(config, print)
    params = build.build(config, meshes.make_mesh(config.mesh), vocabulary).shapes.params
    assert measured["parameters"] == metrics.count(params, 200) > measured["encoder_parameters"]
    assert numbers["steps"] == 3 and numbers["compile_seconds"] > 0
    assert 0 < numbers["step_seconds"] <= numbers["slowest_seconds"]
    assert numbers["rows_per_second"] == pytest.approx(16 / numbers["step_seconds"])
    # Synthetic rows are full.
    assert numbers["tokens_per_second"] == pytest.approx(16 * 32 / numbers["step_seconds"])
    assert numbers["flops_per_step"] == 16 * bert.row_flops(config.model, 200, 32, 5)
    assert numbers["utilization"] is None and numbers["peak_bytes_from"] == "compiler"
    assert measured["devices"] == ["cpu"] * 8 and measured["mesh"]["data"] == 8
    text = benchmark.describe(measured)
    assert "no known peak of cpu" in text and "synthetic batches" in text


def test_peak_bytes_hold_the_state(config, measured):
    """Parameters and two moments in float32, on every device: less cannot be, and activations are as small here."""
    state = 3 * 4 * measured["parameters"]
    assert state < measured["phases"]["main"]["peak_bytes"] < 40 * state


def test_the_peak_of_a_phase_before_is_not_its_own(config, monkeypatch):
    """Devices tell the most since the process began: 5 GiB once, before the phase or in it."""
    for before, source in ((5 * 2**30, "compiler"), (2**30, "device"), (None, "compiler")):
        told = iter([before, before and 5 * 2**30])
        monkeypatch.setattr(metrics, "peak_bytes", lambda devices, told=told: next(told))
        values = time(config, steps=1)
        numbers = values["phases"]["main"]
        assert numbers["peak_bytes_from"] == source
        assert (numbers["peak_bytes"] == 5 * 2**30) == (source == "device")
        assert ("5.000 GiB a device (device)" in benchmark.describe(values)) == (source == "device")


def test_a_known_device_has_a_utilization(config, measured, monkeypatch):
    monkeypatch.setitem(chips.PEAK_FLOPS, "cpu", 1e9)
    values = time(config, steps=1)
    numbers = values["phases"]["main"]
    expected = numbers["flops_per_step"] / numbers["step_seconds"] / 8e9
    assert numbers["utilization"] == pytest.approx(expected)
    assert f"utilization {expected:.3f}" in benchmark.describe(values)


def test_steps_are_timed_one_by_one_and_warm(config, monkeypatch):
    """A clock that only moves when a step is called: of four calls the first two do not count."""
    calls, now = [], [0.0]
    compile_it = benchmark.compile_phase

    def slow(*arguments):
        made = compile_it(*arguments)
        program = made.train

        class Slow:
            memory_analysis = program.memory_analysis

            def __call__(self, *inputs):
                calls.append(inputs)
                now[0] += (100, 50, 3, 1, 2)[len(calls) - 1]
                return program(*inputs)

        return made._replace(train=Slow())

    monkeypatch.setattr(benchmark, "compile_phase", slow)
    monkeypatch.setattr(benchmark.time, "perf_counter", lambda: now[0])
    numbers = time(config, steps=3)["phases"]["main"]
    assert len(calls) == 5 and numbers["steps"] == 3
    assert numbers["step_seconds"] == 2 and numbers["slowest_seconds"] == 3


def test_a_program_from_the_cache_is_told_as_that(measured, tmp_path):
    """That of training: others, which are found as well, do not count."""
    place = jax.config.jax_compilation_cache_dir
    config = jax_setup.start(small_config("model.layers=1", "model.width=8", "model.heads=2"))
    (phase,) = configs.phases(config)
    mesh = build.make_mesh(config, [phase], jax.devices()[:1])
    found = []
    try:
        compilation_cache.reset_cache()
        jax.config.update("jax_compilation_cache_dir", str(tmp_path))
        for _ in range(3):
            found.append(benchmark.compile_phase(config, phase, mesh, VOCABULARY))
            if len(found) == 1:
                (path,) = tmp_path.glob("jit_train*-cache")
                path.unlink()
    finally:
        compilation_cache.reset_cache()
        jax.config.update("jax_compilation_cache_dir", place)
    assert [made.is_from_cache for made in found] == [False, False, True]
    for before, words in ((False, ", compiled in "), (True, ", from the cache in ")):
        numbers = measured["phases"]["main"] | {"compiled_before": before}
        assert words in benchmark.describe(measured | {"phases": {"main": numbers}})


@pytest.mark.slow
def test_saved_batches_are_timed_with_their_real_tokens(world):
    values = time(world.load(), str(world.saved), "long", steps=4)
    assert list(values["phases"]) == ["long"]
    numbers = values["phases"]["long"]
    assert 0.3 * 8 * 32 < numbers["tokens_per_second"] * numbers["step_seconds"] < 8 * 32
    assert values["batches"] == str(world.saved)


@pytest.mark.slow
def test_timed_steps_are_traced(world, tmp_path, capsys):
    """Those that are timed, each phase in a directory of its own, and nothing else is written."""
    place = tmp_path / "new/traces"
    assert main(["benchmark", *world.arguments("--steps", 3, "--profile", place)]) == 0
    traces = f"{place / 'short'} {place / 'long'}"
    assert f"traces, whose making takes time as well: {traces}" in capsys.readouterr().out
    assert sorted(path.name for path in place.iterdir()) == ["long", "short"]
    first, last = benchmark.WARM_UP, benchmark.WARM_UP + 3
    for phase in place.iterdir():
        assert traced_steps(phase) == [list(range(first, last))]


@pytest.mark.slow
def test_every_phase_is_timed(world, capsys):
    command = ["benchmark", *world.arguments("--steps", 2, "--json", "-", batches=world.saved)]
    assert main(command) == 0
    values = json.loads(capsys.readouterr().out)
    assert list(values["phases"]) == ["short", "long"]
    assert values["batches"] == str(world.saved)


def test_the_vocabulary_is_the_one_that_will_be(tmp_path):
    config = small_config(f"store={tmp_path}/store", f"tokenizer.path={tmp_path}/vocab.txt")
    said = []
    asked = vocabulary_file.likely_vocabulary(config, said.append)
    assert asked == (200, 0, 1, 2, 3, 4)
    (line,) = said
    assert f"{tmp_path}/vocab.txt: not there, config.tokenizer.size=200 instead" in line
    pieces = ["[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]", "a", "b"]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces))
    assert vocabulary_file.likely_vocabulary(config, print) == (7, 1, 0, 2, 3, 4)
    write_corpus(tmp_path / "corpus.txt", documents=30)
    keys = overrides(SMALL | {"corpus.source": tmp_path / "corpus.txt"})
    keys = [f"--config.{key}" for key in keys] + [f"--config.store={tmp_path}/store"]
    assert main(["prepare", "--config", "demo", *keys]) == 0
    words = tokenizer.load(tmp_path / "store/tokenizer")
    assert vocabulary_file.likely_vocabulary(config, print) == (words.size, *words.special.values())


@pytest.mark.parametrize(
    "options, words",
    [
        (["--phase", "middle"], "--phase middle: the config has short, long"),
        (["--batches", "nowhere"], "nowhere: no saved batches"),
        (["--config.seed=1", "--batches", "SAVED"], "config.seed: 12345 there, 1 now"),
        (["--config.phases.long.batch=12"], "phases.long.batch=12: does not divide over 8 devices"),
        (["--config.mesh.tensor=3"], "does not fit 8 devices"),
        (["--config.model.heads=5"], "model.heads=5"),
        (["--profile", "/dev/null/traces"], "--profile /dev/null/traces: cannot be written"),
        (["--phase", "middle", "--profile", "traces"], "--phase middle"),
    ],
)
def test_what_cannot_be_timed(world, tmp_path, monkeypatch, capsys, options, words):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(benchmark, "compile_phase", None)  # refused before anything is compiled
    options = [str(world.saved) if option == "SAVED" else option for option in options]
    assert main(["benchmark", *world.arguments(*options)]) == 2
    error = capsys.readouterr().err.strip()
    assert words in error and "\n" not in error
    assert not list(tmp_path.iterdir())


def test_a_phase_without_saved_batches(world, tmp_path):
    world.save(0, 6, tmp_path / "short")
    with pytest.raises(BadInput, match="holds the steps 0 to 5, none of phase long"):
        time(world.load(), str(tmp_path / "short"))

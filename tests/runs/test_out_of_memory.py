"""Programs that exceed a device's memory: one line with the numbers and the keys that help, exit code 2."""

import threading

import jax
import pytest
from kits.malformed_inputs import refused
from kits.runs import pretraining

from bert_jax import build
from bert_jax.errors import BadInput
from bert_jax.runs import out_of_memory
from bert_jax.tasks import feed

TPU = (
    "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm."
    " Used 20.50G of 15.75G hbm. Exceeded hbm capacity by 4.75G.\n\nTotal hbm usage >= 21.00G:"
)
GPU = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4831838208 bytes."


@pytest.mark.parametrize(
    "text, numbers", [(TPU, ["20.50 of 15.75 GiB", "4.75"]), (GPU, ["4831838208 bytes"])]
)
def test_an_out_of_memory_error_names_the_numbers_and_the_keys_that_help(text, numbers):
    with pytest.raises(BadInput) as caught, out_of_memory.explain("phase main, a step"):
        raise jax.errors.JaxRuntimeError(text)
    line = str(caught.value)
    assert line.startswith("phase main, a step: ") and "\n" not in line
    for word in (*numbers, "config.train.tokens_per_device", "config.train.remat"):
        assert word in line


def test_other_errors_pass_through():
    with pytest.raises(jax.errors.JaxRuntimeError), out_of_memory.explain("a step"):
        raise jax.errors.JaxRuntimeError("INTERNAL: Used 20.50G of 15.75G of a disk")


@pytest.mark.slow
def test_a_program_that_does_not_fit_is_refused_before_anything_is_written(
    finished, tmp_path, monkeypatch
):
    def fail(lowered):
        raise jax.errors.JaxRuntimeError(TPU)

    told, hashed = threading.Event(), []
    monkeypatch.setattr(jax.stages.Lowered, "compile", fail)
    # It does not wait until the store is hashed.
    monkeypatch.setattr(feed.StoreFeed, "check_hashes", lambda _: hashed.append(told.wait(20)))
    assert "config.train.tokens_per_device" in refused(*pretraining(finished[0], tmp_path))
    assert not hashed and not list(tmp_path.rglob("*.json"))
    told.set()


@pytest.mark.full
def test_a_first_step_that_runs_out_of_memory_is_refused(finished, tmp_path, monkeypatch):
    compile_program = build.compile_program

    def program(lowered, what):
        def fail(state, rows):
            raise jax.errors.JaxRuntimeError(GPU)

        made = compile_program(lowered, what)
        return fail if what == "phase main, a step" else made

    monkeypatch.setattr(build, "compile_program", program)
    assert "phase main: " in refused(*pretraining(finished[0], tmp_path))

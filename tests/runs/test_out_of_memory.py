"""Devices that have no room for a program: one line with the numbers and what helps, exit code 2."""

import jax
import pytest
from kits.saved_world import World

from bert_jax import build
from bert_jax.cli import main
from bert_jax.errors import BadInput
from bert_jax.runs import out_of_memory

TPU = (
    "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. Used 20.50G of 15.75G"
    " hbm. Exceeded hbm capacity by 4.75G.\n\nTotal hbm usage >= 21.00G:"
)
GPU = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4831838208 bytes."


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    made = World(tmp_path_factory.mktemp("world"))
    assert main(["prepare", *made.arguments()]) == 0
    return made


@pytest.mark.parametrize(
    "text, words",
    [
        (TPU, "needs 20.50 GiB of the 15.75 GiB of a device, 4.75 too many"),
        (GPU, "asks a device for 4.50 GiB more, and there is no room"),
        (GPU.replace("4831838208 bytes", "4.50GiB"), "asks a device for 4.50 GiB more"),
        ("RESOURCE_EXHAUSTED: Out of memory allocating 1073741824 bytes.", "for 1.00 GiB more"),
        (
            "RESOURCE_EXHAUSTED: Error loading program: Attempting to reserve 9.90G at the bottom of memory. That was"
            " not possible. There are 8.72G free, 0B reserved.",
            "asks a device for 9.90 GiB more where 8.72 GiB are free",
        ),
        ("RESOURCE_EXHAUSTED: too many\nstreams", "RESOURCE_EXHAUSTED: too many streams"),
    ],
)
def test_what_devices_say(text, words):
    with pytest.raises(BadInput) as caught, out_of_memory.told("phase main, a step"):
        raise jax.errors.JaxRuntimeError(text)
    line = str(caught.value)
    assert line.startswith("phase main, a step: out of memory: ") and words in line
    assert "config.train.rows_per_chip" in line and "config.train.remat" in line
    assert "\n" not in line


def test_another_error_is_not_of_memory():
    with pytest.raises(jax.errors.JaxRuntimeError), out_of_memory.told("a step"):
        raise jax.errors.JaxRuntimeError("INTERNAL: Used 20.50G of 15.75G of a disk")


def refused(command, capsys) -> str:
    assert main(command) == 2
    error = capsys.readouterr().err.strip().splitlines()
    assert len([line for line in error if line.startswith("bert-jax: ")]) == 1, error
    assert not any("Traceback" in line for line in error)
    return error[-1]


@pytest.mark.parametrize("text, words", [(TPU, "4.75 too many"), (GPU, "4.50 GiB more")])
def test_a_program_that_cannot_be_compiled(world, tmp_path, monkeypatch, capsys, text, words):
    def compile_nothing(lowered):
        raise jax.errors.JaxRuntimeError(text)

    monkeypatch.setattr(jax.stages.Lowered, "compile", compile_nothing)
    train = ["pretrain", *world.arguments("--workdir", tmp_path / "run")]
    for command in (["benchmark", *world.arguments("--steps", 1)], train):
        line = refused(command, capsys)
        assert words in line and "config.train.rows_per_chip" in line
    assert not list((tmp_path / "run").rglob("*.json*")), "it was refused before anything"


@pytest.mark.parametrize("command", ["benchmark", "pretrain"])
def test_a_first_step_without_room(world, tmp_path, monkeypatch, capsys, command):
    """Of the second phase, too."""
    compile_it = build.compile_program

    def program(lowered, what):
        made = compile_it(lowered, what)
        if what != "phase long, a step":
            return made

        def call(state, rows):
            raise jax.errors.JaxRuntimeError(GPU)

        return call

    monkeypatch.setattr(build, "compile_program", program)
    more = ("--workdir", tmp_path / "run") if command == "pretrain" else ("--phase", "long")
    line = refused([command, *world.arguments(*more)], capsys)
    assert "phase long, a step: out of memory: asks a device for 4.50 GiB more" in line

"""GPUs by name, their bandwidth, and programs compiled for them without one."""

import json
import subprocess
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
from kits.gpus import needs_compiler
from kits.malformed_inputs import refused
from kits.plans import arguments
from kits.small import small_config

from bert_jax.errors import BadInput
from bert_jax.parallel import chips
from bert_jax.parallel.cards import CARDS
from bert_jax.planning import compilation, gpus, hlo, search, topology
from bert_jax.runs import environment
from bert_jax.runs.out_of_memory import TooLarge


@pytest.mark.parametrize(
    "name, hosts, per_host", [("h100:1", 1, 1), ("a100:8", 1, 8), ("b200:2x8", 2, 8)]
)
def test_machines_are_found_by_name(name, hosts, per_host):
    machines = topology.find(name)
    assert (machines.hosts, machines.per_host) == (hosts, per_host)
    assert machines.chips == hosts * per_host
    assert machines.chip.device_kind in machines.accelerator_type


@pytest.mark.parametrize("name", ["h100", "h100:", "h100:0", "h100:0x8", "h101:8", "h100:2x2x8"])
def test_an_unknown_name_is_refused_with_those_that_exist(tmp_path, name):
    message = refused(*arguments(tmp_path, topology=name))
    assert f"--topology {name}" in message and "rtx4090" in message


def test_a_missing_compiler_is_refused_with_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(environment, "has_gpu_compiler", lambda: False)
    assert "plan-gpu" in refused(*arguments(tmp_path, topology="h100:1"))


@pytest.mark.parametrize("kind", CARDS)
def test_the_peak_of_a_card_is_that_of_its_devices(kind):
    card = CARDS[kind]
    device = SimpleNamespace(device_kind=card.device_kind)
    assert chips.utilization(8 * card.flops, [device] * 8) == 1


@pytest.mark.parametrize("text", ["abc", "0", "1.5", "-1"])
def test_a_wrong_share_of_the_memory_is_refused(tmp_path, monkeypatch, text):
    monkeypatch.setenv(environment.SHARES[0], text)
    with pytest.raises(BadInput, match=f"{environment.SHARES[0]}={text}"):
        assert topology.find("h100:1").memory


@pytest.mark.parametrize(
    "name, shape, axes, kind, ports",
    [
        ("h100:8", (8, 1), ("data",), "all-reduce", None),  # NVLink alone
        ("h100:2x8", (2, 8), ("fsdp",), "all-gather", None),
        ("h100:2x8", (16, 1), ("data",), "all-reduce", 8),  # a ring through all ports
        ("h100:2x8", (2, 8), ("data",), "all-reduce", 1),  # eight rings, each through one port
        ("h100:2x8", (16, 1), ("data",), "all-to-all", 15 / 8),
        ("h100:2x8", (16, 1), ("data",), "collective-permute", 1),
        (
            "h100:2x3",
            (3, 2),
            ("fsdp",),
            "all-gather",
            1,
        ),  # the second of three groups is on both machines
    ],
)
def test_bytes_a_second_of_a_collective(name, shape, axes, kind, ports):
    machines = topology.find(name)
    hosts = np.arange(machines.chips) // machines.per_host
    devices = np.array([SimpleNamespace(process_index=host) for host in hosts]).reshape(shape)
    mesh = SimpleNamespace(devices=devices, axis_names=("data", "fsdp"))
    expected = machines.chip.link if ports is None else ports * machines.chip.network
    assert machines.bandwidth(mesh, kind, axes) == pytest.approx(expected)


@pytest.mark.parametrize("share, is_enough", [("0.75", False), ("0.95", True)])
def test_the_memory_of_a_gpu_is_compared_although_everything_compiles(
    monkeypatch, share, is_enough
):
    step = compilation.Step(hlo.Memory(1, 1, 1, total=7 * 10**10), [])
    monkeypatch.setattr(compilation, "extend", lambda *_: step)
    monkeypatch.setenv(environment.SHARES[0], share)
    with nullcontext() if is_enough else pytest.raises(TooLarge):
        assert compilation.compile_step(None, topology.find("h100:1"), None, None) == step


def test_a_search_tries_the_other_attention(monkeypatch):
    devices = [SimpleNamespace(platform="gpu")] * 8
    monkeypatch.setattr(gpus.Machines, "devices", lambda self: devices)
    config = small_config("model.attention=xla")
    settings = search.settings(config, topology.find("h100:8"))
    assert [change for change in settings if "model.attention" in change] == [
        {"model.attention": "cudnn"}
    ]
    assert {"mesh.data": -1, "mesh.fsdp": 8} in settings


@needs_compiler
@pytest.mark.slow
def test_a_small_step_is_planned_for_gpus(tmp_path):
    """Standard error has only progress, and nothing of a compiler that misses its driver."""
    options = arguments(tmp_path, "--json", "-", "--price", 2, topology="h100:2")
    command = [sys.executable, "-m", "bert_jax", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr.count("\n") == 1
    values = json.loads(done.stdout)
    assert values["mesh"]["data"] == values["chips"] == 2
    phase = values["phases"]["main"]
    assert phase["fits"] and phase["attention"] == "xla"
    # In a ring of two, each GPU sends 2 x 1/2 of the float32 gradients.
    gradients = 4 * values["parameters"]
    assert phase["sent_per_chip"]["all-reduce"] == pytest.approx(gradients, rel=0.1)
    assert phase["bytes_of_arguments"] > 3 * gradients
    assert phase["seconds_by_roofline"] == phase["seconds_computing"] > 0
    least, most = phase["seconds_per_step_all_hidden"], phase["seconds_per_step_none_hidden"]
    assert 0 < least < phase["seconds_per_step"] < most
    assert values["cost"] == pytest.approx(2 * 2 * values["hours"])


@needs_compiler
def test_a_description_is_what_the_compiler_reads():
    """The compiler has the device's kind from it; a description that it cannot parse is refused in one line."""
    for kind, card in CARDS.items():
        devices = topology.find(f"{kind}:2x4").devices()
        assert [device.process_index for device in devices] == [0] * 4 + [1] * 4
        assert {device.device_kind for device in devices} == {card.device_kind}


@needs_compiler
@pytest.mark.slow
def test_commands_are_silent_about_the_compiler():
    command = [sys.executable, "-m", "bert_jax", "config", "--config", "demo"]
    assert not subprocess.run(command, capture_output=True, text=True, check=True).stderr

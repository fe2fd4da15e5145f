"""Programs for GPUs that run on any device."""

from types import SimpleNamespace

import jax

from bert_jax.layers import gpu

GPU = SimpleNamespace(platform="gpu", device_kind="NVIDIA H100 80GB HBM3")


def compile_for_gpus(monkeypatch) -> None:
    """Makes the test trace the operations of programs for GPUs from now on."""

    def choose(*arguments, default, cpu=None, cuda=None):
        return (cuda or default)(*arguments)

    monkeypatch.setattr(jax.lax, "platform_dependent", choose)
    monkeypatch.setattr(gpu, "find_device", lambda mesh=None: GPU)

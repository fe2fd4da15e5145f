"""The compiler for GPUs, which needs no GPU."""

from importlib.util import find_spec

import pytest

from bert_jax.runs import environment

needs_compiler = pytest.mark.skipif(
    not environment.has_gpu_compiler(), reason="needs the GPU compiler: pip install -e .[plan-gpu]"
)
needs_cudnn = pytest.mark.skipif(
    not find_spec("jax_cuda12_plugin"), reason="needs cuDNN: pip install -e .[plan-gpu,gpu]"
)

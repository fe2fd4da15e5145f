"""The compiler for GPUs, which needs no GPU."""

from importlib.util import find_spec

import pytest

from bert_jax.runs import cuda

needs_compiler = pytest.mark.skipif(
    not cuda.is_installed(), reason="needs the GPU compiler: pip install -e .[plan-gpu]"
)
needs_cudnn = pytest.mark.skipif(
    not find_spec("jax_cuda12_plugin"), reason="needs cuDNN: pip install -e .[plan-gpu,gpu]"
)

"""The compiler for GPUs, which needs no GPU."""

import pytest

from bert_jax.runs import cuda

needs_compiler = pytest.mark.skipif(
    not cuda.is_installed(), reason="needs the GPU compiler: pip install -e .[plan-gpu]"
)

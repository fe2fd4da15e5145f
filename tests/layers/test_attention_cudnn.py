"""Attention by cuDNN: its call computes what `xla` does, and programs for GPUs contain it, without a GPU."""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kits import attention as kit
from kits.attention import compute, make_rows, plain
from kits.gpus import needs_cudnn

from bert_jax import config as configs
from bert_jax.errors import BadInput
from bert_jax.layers import attention, attention_cudnn
from bert_jax.layers.attention_spec import Spec
from bert_jax.planning import compilation, plan, topology


def assert_call_equals_xla(spec, arrays, tolerance=1e-5):
    """The same call with JAX's own implementation checks the scale, the mask, and the mask by lengths."""
    function = partial(attention_cudnn.attend, spec, implementation="xla")
    reference = partial(plain, causal=spec.causal, window=spec.window)
    kit.assert_close(compute(function, arrays), compute(reference, arrays), tolerance)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("sequences", "window"), [(1, 0), (2, 0), (1, 16), (2, 16)])
def test_the_call_of_cudnn_equals_xla(causal, sequences, window):
    *arrays, ids = make_rows(5, 96)
    arrays = (*arrays, ids if sequences > 1 else np.minimum(ids, 1))
    assert_call_equals_xla(Spec("cudnn", kit.SIZE, window, causal, sequences=sequences), arrays)
    assert (ids.sum(1) == 0).any()


@pytest.mark.full
@pytest.mark.parametrize("number", range(200))
def test_the_call_of_cudnn_equals_xla_for_any_rows(number):
    """Of any length, heads, window, documents and padding; some rows have no real token."""
    draw = np.random.default_rng(number)
    length, heads, size = (int(draw.choice(x)) for x in ((2, 34, 96, 150), (1, 3), (8, 24)))
    shape = 4, length, heads, size
    q, k, v, weights = draw.normal(size=(4, *shape)).astype(np.float32)
    documents = int(draw.integers(1, 9))
    starts = draw.random((4, length)) < draw.random((4, 1)) * documents / length
    ids = 1 + starts.cumsum(1) * (documents > 1)
    ids = np.where(np.arange(length) < draw.integers(0, length + 1, (4, 1)), ids, 0)
    ids[-1] = 0
    window = int(draw.choice((0, 2, 16, 128)))
    spec = Spec("cudnn", size, window, bool(draw.integers(2)), sequences=min(documents, 2))
    weights *= (ids > 0)[..., None, None]
    assert_call_equals_xla(spec, (q * size**-0.5, k, v, weights, ids.astype(np.int32)))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("sequences", "call"), [(1, "Softmax"), (4, "ScaleBiasSoftmax")])
def test_the_program_for_a_gpu_calls_cudnn(monkeypatch, causal, sequences, call):
    """Forward and backward."""
    library = importlib.import_module("jax._src.cudnn.fused_attention_stablehlo")
    monkeypatch.setattr(library, "check_cudnn_version", lambda: 91200)
    monkeypatch.setattr(attention, "device_and_kernels", lambda mesh=None: kit.GPU)
    x = jax.ShapeDtypeStruct((4, 100, 2, 64), jnp.bfloat16)

    def total(q, k, v, ids):
        attend = kit.attend("cudnn", ids, causal=causal, sequences=sequences)
        return attend(q, k, v, None).astype(jnp.float32).sum()

    program = jax.jit(jax.grad(total, argnums=(0, 1, 2)))
    traced = program.trace(x, x, x, jax.ShapeDtypeStruct((4, 100), jnp.int32))
    text = traced.lower(lowering_platforms=("cuda",)).as_text()
    calls = [f"__cudnn$fmha{call}", f"__cudnn$fmha{call}Backward"]
    assert re.findall(r"custom_call @(__cudnn\S+?)\(", text) == calls
    kind = ("PADDING", "PADDING_CAUSAL", "NO_MASK", "CAUSAL")[2 * (sequences > 1) + causal]
    assert text.count(rf"mask_type\22: \22{kind}\22") == 2


def test_missing_cudnn_is_refused_with_what_to_install(monkeypatch):
    def fail():
        raise RuntimeError("cuDNN is not detected.")

    library = importlib.import_module("jax._src.cudnn.fused_attention_stablehlo")
    monkeypatch.setattr(library, "check_cudnn_version", fail)
    x = jnp.zeros((1, 8, 2, 64), jnp.bfloat16)
    with pytest.raises(BadInput, match=r"model\.attention: cuDNN, .*'\.\[gpu\]'"):
        attention_cudnn.attend(Spec("cudnn", 64), x, x, x, jnp.ones((1, 8), jnp.int32))


def make_job(rows: int, length: int, *keys: str):
    """Returns the job of a step of `modern_demo` with three layers and packed rows."""
    keys = (f"phases.main.batch={rows}", f"phases.main.length={length}", *keys)
    keys += (f"phases.main.max_predictions={length // 4}",)
    keys += ("model.layers=3", "model.max_length=512", "store=none", "compilation_cache=")
    keys += ("model.window=64",)  # cudnn computes local layers of up to eight windows
    return plan.make_job(configs.load("modern_demo", keys), None, lambda text: None)


@needs_cudnn
@pytest.mark.full
@pytest.mark.parametrize("remat", ["none", "full"])
@pytest.mark.parametrize("card", ["a100", "rtx4090", "h100", "b200"])
def test_a_packed_step_has_the_kernel_in_both_passes(card, remat):
    """By `auto`, in full and in local layers."""
    job = make_job(4, 512, f"train.remat={remat}")
    mesh = compilation.make_mesh(job, topology.find(f"{card}:1"))
    text = compilation.lower(job, mesh, job.phases[0]).compile().as_text()
    name = "__cudnn$fmhaScaleBiasSoftmax"
    calls = Counter(re.findall(r'custom_call_target="(__cudnn\S+?)"', text))
    assert calls == {name: 6 if remat == "full" else 3, f"{name}Backward": 3}


@needs_cudnn
@pytest.mark.full
def test_a_plan_counts_the_masks_that_heads_and_layers_share():
    """One of full and one of local layers, and the workspace of one gradient, of both heads. As many tokens in rows
    half as long need nothing else less."""
    values = [
        plan.plan(make_job(rows, length), "rtx4090:1", None)["phases"]["main"][
            "bytes_of_temporaries"
        ]
        for rows, length in ((16, 512), (32, 256))
    ]
    mask = 2 * 16 * 512**2
    assert values[0] - values[1] == pytest.approx((2 + 2) * (mask - mask / 2), rel=0.01)


# Runs in a process without the variables of conftest.py, which hide GPUs.
ON_GPU = """
from functools import partial
import jax, jax.numpy as jnp, numpy as np
from bert_jax.layers import attention_cudnn
from bert_jax.layers.attention_spec import Spec
from kits.attention import SIZE, assert_aligned, compute, make_rows, plain
cases = [(96, False, 0, False), (96, True, 0, False), (256, False, 0, False), (256, True, 0, True)]
cases += [(256, True, 128, False), (1024, True, 128, False), (1024, True, 128, True)]
for length, packed, window, causal in cases:
    *arrays, ids = make_rows(5, length)
    case = (*arrays, ids if packed else np.minimum(ids, 1))
    spec = Spec("cudnn", SIZE, window, causal, sequences=2 if packed else 1)
    reference = partial(plain, causal=causal, window=window)
    functions = (lambda *x: attention_cudnn.attend(spec, *x)), reference
    actual, expected = (compute(each, case, jnp.bfloat16) for each in functions)
    for a, b in zip(actual, expected, strict=True):
        assert_aligned(a, b, 1e-4, 2e-3)
"""


def test_cudnn_on_a_gpu_equals_xla():
    """Outputs and gradients in bfloat16. On a CPU, 1 - cosine to float32 is at most 1.5e-5 for each of the two."""
    if not (os.path.exists("/dev/nvidia0") or shutil.which("nvidia-smi")):
        pytest.skip("no GPU")
    if not any("cuda" in x.name for x in importlib.metadata.entry_points(group="jax_plugins")):
        pytest.skip("no GPU for JAX: pip install -e .[gpu]")
    hidden = ("JAX_PLATFORMS", "CUDA_VISIBLE_DEVICES")
    variables = {name: value for name, value in os.environ.items() if name not in hidden}
    variables["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    command = [sys.executable, "-c", ON_GPU]
    done = subprocess.run(command, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

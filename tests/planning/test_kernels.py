"""Cycles of the attention kernels, as the instructions that call them say."""

from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kits.slices import compiling, devices, needs_libtpu

from bert_jax.models import attention
from bert_jax.planning import kernels, timeline

CALL = (
    "  %splash_mha_{kernel}_segmented.1 = (bf16[4,3,{length},64]{{3,2,1,0}}) custom-call(%a, %b),"
    ' custom_call_target="{target}", operand_layout_constraints={{s8[1,1,1]{{2,1,0}},'
    " {dtype}[4,3,64,{length}]{{3,2,1,0}}, s32[4,8,{length}]{{2,1,0}}}}"
)
USUAL = dict(kernel="fwd", length=512, target="tpu_custom_call", dtype="bf16")


@pytest.mark.parametrize(
    ("changes", "device", "expected"),
    [
        ({}, "TPU v5 lite", 4 * 3 * 2111),
        ({"kernel": "dkv"}, "TPU v5 lite", 4 * 3 * 2857),
        ({"length": 384}, "TPU v5 lite", 4 * 3 * 1415),
        ({"length": 1024}, "TPU v5 lite", 4 * 3 * 4 * 2111),  # each half of the row by each
        ({"dtype": "f32"}, "TPU v5 lite", round(4 * 3 * 2111 * kernels.FLOAT32)),
        ({}, "TPU v6 lite", round(4 * 3 * 2111 * 0.64)),
        ({"kernel": "other"}, "TPU v5 lite", 0),
        ({"target": "Sharding"}, "TPU v5 lite", 0),
    ],
)
def test_instructions_of_all_rows_heads_and_blocks(changes, device, expected):
    mesh = SimpleNamespace(devices=np.array([SimpleNamespace(device_kind=device)]))
    assert kernels.cycles(CALL.format(**USUAL | changes), mesh) == expected


FUSED = (
    '  %{name}.2 = bf16[6,256,384]{{2,1,0}} custom-call(%a, %b), custom_call_target="tpu_custom_call",'
    " operand_layout_constraints={{u32[6]{{0}}, s32[1]{{0}}, s32[6,256,1]{{2,1,0}}, bf16[6,256,384]{{2,1,0}}}}"
)


@pytest.mark.parametrize("name", ["forward", "backward", "forward_dropout", "backward_dropout"])
def test_instructions_of_rows_of_our_kernel(name):
    """Two rows at once, of 3 x 128 lanes."""
    mesh = SimpleNamespace(devices=np.array([SimpleNamespace(device_kind="TPU v5 lite")]))
    kernel, _, dropout = name.partition("_")
    for size, more in ((64, 1), (32, 2)):
        line = FUSED.format(name=f"rows_{kernel}_kernel_{size}{'_' * bool(dropout)}{dropout}")
        assert kernels.cycles(line, mesh) == more * 3 * 3 * kernels.FUSED_STEPS[name][256]


@needs_libtpu
@pytest.mark.parametrize(
    ("kind", "name", "relative"),
    [
        ("splash", "v5e:2x2", 1.0),
        ("splash", "v4:2x2x1", 1.39),
        ("splash", "v5p:2x2x1", 1.02),
        ("fused", "v5e:2x2", 1.0),
        ("fused", "v5p:2x2x1", 1.03),
    ],
)
def test_calls_are_found_in_a_program(kind, name, relative):
    """Forward and backward, in a loop of three; the compiler's own cycles are beside them."""
    options = {"chip_config_name": "megacore"} if name.startswith("v4") else {}
    mesh = jax.sharding.Mesh(devices(name, **options)[:1], "x")
    where = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    x = jax.ShapeDtypeStruct((3, 2, 128, 2, 64), jnp.bfloat16, sharding=where)
    ids = jax.ShapeDtypeStruct((2, 128), jnp.int32, sharding=where)

    fused = partial(attention.fused, keys=np.zeros(2, np.uint32), rate=0.1)
    function = {"splash": attention.splash, "fused": fused}[kind]

    def total(x, ids):
        parts = jax.lax.map(lambda x: function(x, x, x, ids), x)
        return parts.astype(jnp.float32).sum()

    # No kernel multiplies bfloat16 in six passes, as a run in float32 before this one has set for all.
    with compiling(), jax.default_matmul_precision(None):
        text = jax.jit(jax.value_and_grad(total)).lower(x, ids).compile().as_text()
    found = timeline.read(text, mesh)
    if kind == "splash":
        steps = [2 * 2 * kernels.SPLASH_STEPS[one][128] for one in ("fwd", "dkv")]
    else:  # two of the four rows of a step
        steps = [
            0.5 * kernels.FUSED_STEPS[f"{one}_dropout"][128] for one in ("forward", "backward")
        ]
    expected = sum(round(count * relative) for count in steps)
    assert timeline.cycles(found, ("kernel",)) == 3 * expected
    assert timeline.cycles(found) > 3 * expected

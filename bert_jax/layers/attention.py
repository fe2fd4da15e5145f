"""Multi-head attention: equivalent implementations, and the choice among them (`model.attention`).

B batch, L length of the queries, M length of the keys, H heads, K head size.

- `xla` is the reference (attention_xla.py). It supports every case and keeps all probabilities in memory, but on GPUs
  those of long rows, see MAX_SAVED_LENGTH.
- `fused` is this project's TPU kernel (attention_kernel.py). It reads whole rows, and rotates and drops out itself. The
  keys may be of a second sequence with rows as long.
- `splash`, JAX's TPU kernel, and `cudnn`, a GPU kernel, compute blocks of probabilities, without dropout.

In all of them a real token attends only to real tokens of its own packed sequence, if attention is causal only to
itself and earlier ones, and with a window only to near ones. Then only blocks near the diagonal are computed, except by
`cudnn`. What a padding token attends to depends on the implementation, and affects neither loss nor gradients.

The choice is made per compiled program, from its devices, the length and packing of its rows, and whether it applies
attention dropout. So training and evaluation of one model may use different implementations.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from bert_jax import prng
from bert_jax.errors import BadInput
from bert_jax.layers import (
    attention_cudnn,
    attention_kernel,
    attention_splash,
    attention_xla,
    gpu,
    rotary,
)
from bert_jax.layers.attention_kernel import LANES, MAX_LENGTH, MAX_LOCAL_LENGTH
from bert_jax.layers.attention_spec import OTHER_KEYS, Mask, Spec
from bert_jax.parallel import constraints
from bert_jax.parallel.cards import CARDS

DEVICES = {
    "fused": "TPUs from v5 on",
    "splash": "TPUs from v4 on",
    "cudnn": "NVIDIA GPUs from Ampere on",
}
# Row length from which `auto` chooses a kernel. Million cycles of a layer of BERT-base for 8,192 tokens on v5e, without
# attention dropout, by xla (the compiler's estimate) and by splash (counted instructions):
#     length 128: 4.3 and 6.0;  256: 5.8 and 6.0;  384: 6.8 and 6.0;  512: 8.3 and 6.1
# With attention dropout, two layers at length 128 take 15.8 by fused and 15.4 by xla. A layer of ModernBERT-base for
# 16,384 tokens, by fused and by splash, which both have custom calls at half the peak (custom_calls.py):
#     length 1,024: 11.7 and 11.9, local 7.8 and 12.4;  8,192: local 8.4 and 12.7
# Estimated milliseconds of the same layer, packed, by xla and by cudnn:
#     RTX 4090, length 128: 1.8 and 0.8;  1,024: 11.9 and 2.3;  8,192: 88 and 16.  H100, 8,192: 27 and 4.2
SHORTEST = {"fused": 256, "splash": 384, "cudnn": 1}
# Row length in windows up to which cudnn computes local layers, all pairs with the window in its mask; xla computes
# blocks. With a window of 128:
#     RTX 4090, length 1,024: 4.1 and 2.3;  2,048: 4.1 and 4.2.  H100, 1,024: 1.2 and 0.6;  2,048: 1.2 and 1.1
MAX_WINDOWS = 8
# Row length up to which xla on a GPU saves probabilities for the backward pass, as it does on other devices. Those of
# longer rows it computes again, in local layers with their copies of keys and values. A micro-batch on an H100 by the
# compiled program, saved and computed again:
#     BERT-base, 64 rows of 512: 28.5 and 12.8 GiB, 178 and 209 GB read and written
#     ModernBERT-base, 64 rows of 1,024: 62.9 and 34.5 GiB, 633 and 710 GB
MAX_SAVED_LENGTH = 512
# Kernels of TPUs before v5. fused compiles to five times as many instructions for a v4 as for a v5p.
OLD_TPUS = {"TPU v2": (), "TPU v3": (), "TPU v4": ("splash",)}


class Case(NamedTuple):
    """The attention of one compiled program, as far as the choice of an implementation depends on it beside a Spec."""

    device: str  # device kind, as JAX names it
    kernels: tuple[str, ...]  # of that device, by the compiler's estimate the fastest first
    length: int
    heads: int  # per device
    dtype: str
    properties: tuple[str, ...] = ()  # of the mask, see Mask.properties
    keys: int = 0  # M; it matters with keys of a second sequence


def attend(spec: Spec, mask: Mask, q_BLHK, k_BMHK, v_BMHK, keys):
    """Returns [B, L, H, K]: dropout(softmax(q k^T)) v, in the dtype of q.

    q_BLHK: the queries, already scaled.
    keys: of dropout, uint32[B], or None for no dropout.

    Raises BadInput if the implementation of `spec` does not support this.
    """
    if keys is None:
        spec = spec._replace(dropout=0.0)
    heads = q_BLHK.shape[2] // constraints.tensor_parts()
    shape = q_BLHK.shape[1], heads, q_BLHK.dtype.name
    case = Case(*device_and_kernels(), *shape, mask.properties(), k_BMHK.shape[1])
    name = choose(spec, case)
    if name != "fused":
        mask, q_BLHK, k_BMHK = rotate(mask, q_BLHK, k_BMHK)
    return IMPLEMENTATIONS[name](spec, mask, q_BLHK, k_BMHK, v_BMHK, keys)


def is_recomputed(spec: Spec, length: int) -> bool:
    """Returns whether the backward pass computes probabilities of plain operations again. length: the longer one of
    queries and keys."""
    return spec.remat or (length > MAX_SAVED_LENGTH and gpu.is_target())


def rotate(mask: Mask, q_BLHK, k_BMHK) -> tuple:
    """Returns the mask without angles, and the queries and keys rotated by them, if it has any."""
    if mask.angles:
        q_BLHK = rotary.rotate(q_BLHK, *mask.angles)
        k_BMHK = rotary.rotate(k_BMHK, *(mask.key_angles or mask.angles))
    return mask._replace(angles=(), key_angles=()), q_BLHK, k_BMHK


def choose(spec: Spec, case: Case, phase: str = "") -> str:
    """Returns the implementation for a case: that of `spec`, or for `auto` the first suitable kernel, or else `xla`.

    A kernel is suitable if it supports the case and the row is at least SHORTEST[kernel] tokens. Local layers of long
    rows have `xla` instead of cudnn, even if that is named. Raises BadInput if the named one does not support the case.

    phase: the prefix of the phase's keys in the message, such as `phases.main.`.
    """
    name = spec.implementation
    has_blocks = spec.window and case.length > MAX_WINDOWS * spec.window
    if spec.is_counted or (has_blocks and name == "cudnn"):
        return "xla"
    if name == "auto":
        for kernel in case.kernels:
            is_fast = case.length >= SHORTEST[kernel] and not (has_blocks and kernel == "cudnn")
            if is_fast and not list(refusals(kernel, spec, case)):
                return kernel
        return "xla"
    reasons = list(refusals(name, spec, case, phase))
    if reasons:
        raise BadInput(f"config.model.attention={name}: does not support {'; '.join(reasons)}")
    return name


def refusals(name: str, spec: Spec, case: Case, phase: str = "") -> Iterator[str]:
    """Yields each property of a case that an implementation does not support. `xla` supports all.

    For example, `splash` yields "model.attention_dropout=0.1, only 0" and "length=100, only multiples of 128" for a row
    of 100 tokens with dropout.

    phase: as of `choose`.
    """
    if name == "xla":
        return
    supports_other_keys = name == "fused" and case.keys == case.length
    for description in (*spec.needs, *case.properties):
        if description != OTHER_KEYS or not supports_other_keys:
            yield description
    if name not in case.kernels:
        yield f"{case.device}, only {DEVICES[name]}"
    if spec.dropout and name != "fused":
        yield f"model.attention_dropout={spec.dropout}, only 0"
    multiple = 2 if name == "cudnn" else LANES
    if case.length % multiple:
        yield f"{phase}length={case.length}, only multiples of {multiple}"
    if name == "fused":
        yield from fused_refusals(spec, case, phase)
    if name == "cudnn":
        yield from cudnn_refusals(spec, case)


def fused_refusals(spec: Spec, case: Case, phase: str) -> Iterator[str]:
    """Yields what fused alone does not support, see `refusals`."""
    longest = MAX_LOCAL_LENGTH if spec.window else MAX_LENGTH
    width = spec.head_size * case.heads
    if case.length > longest:
        yield f"{phase}length={case.length}, only up to {longest}"
    if LANES % spec.head_size:
        yield f"model.width/model.heads={spec.head_size}, only divisors of {LANES}"
    if width % LANES:
        yield f"a width of {width} per device, only multiples of {LANES}"


def cudnn_refusals(spec: Spec, case: Case) -> Iterator[str]:
    """Yields what cuDNN alone does not support, see `refusals`."""
    if case.dtype not in ("bfloat16", "float16"):
        yield f"dtype={case.dtype}, only bfloat16"
    if spec.head_size % 8 or spec.head_size > 128:
        yield f"model.width/model.heads={spec.head_size}, only multiples of 8 up to 128"
    has_mask = spec.sequences != 1 or spec.window
    # cuDNN's deterministic operations for 10.x lack the gradient of a mask.
    if has_mask and gpu.is_deterministic() and capability(case.device) == 10:
        yield f"packed rows and local layers on {case.device} with XLA_FLAGS={gpu.DETERMINISTIC}"


def device_and_kernels(mesh=None) -> tuple[str, tuple[str, ...]]:
    """Returns the device kind that a program is compiled for, and the attention kernels that it has. mesh: as in
    `gpu.find_device`."""
    device = gpu.find_device(mesh)
    kind = device.device_kind
    if device.platform == "tpu":
        return kind, OLD_TPUS.get(kind, ("fused", "splash"))
    has_kernel = device.platform == "gpu" and capability(kind) >= 8
    return kind, ("cudnn",) if has_kernel else ()


def capability(kind: str) -> int:
    """Returns the first part of the compute capability of a device kind: of one of CARDS, or of this process' device; 0
    of those that are no NVIDIA GPUs."""
    for card in CARDS.values():
        if card.device_kind == kind:
            return card.capability[0]
    device = jax.local_devices()[0]
    is_cuda = "cuda" in device.client.platform_version
    return int(float(device.compute_capability)) if is_cuda else 0


# --- Implementations: (spec, mask, q, k, v, keys) -> [B, L, H, K] ----------------------------------


def xla(spec: Spec, mask: Mask, q_BLHK, k_BMHK, v_BMHK, keys):
    """Computes attention by plain operations."""
    compute = partial(attention_xla.attend, spec)
    if is_recomputed(spec, max(q_BLHK.shape[1], k_BMHK.shape[1])):
        compute = jax.checkpoint(compute)
    return compute(mask, q_BLHK, k_BMHK, v_BMHK, keys)


def fused(spec: Spec, mask: Mask, q_BLHK, k_BMHK, v_BMHK, keys, interpret: bool = False):
    """Computes attention by this project's TPU kernel, which rotates queries and keys by the angles of the mask, if it
    has any. Padding tokens attend to each other.

    interpret: whether Pallas emulates the kernel by plain operations, which works on any device.
    """
    options = attention_kernel.Options(
        spec.head_size,
        spec.dropout,
        spec.causal,
        spec.window,
        interpret,
    )
    if keys is None:
        keys = jnp.zeros(len(mask.query_ids), jnp.uint32)

    def part(q_BLHK, k_BMHK, v_BMHK, query_ids, key_ids, keys, *angles):
        first_head = constraints.tensor_part() * q_BLHK.shape[2]
        drop = attention_kernel.Drop(prng.fold(keys, jnp.uint32(0)), first_head[None])
        vectors = (x.reshape(*x.shape[:2], -1) for x in (q_BLHK, k_BMHK, v_BMHK))
        ids = query_ids, key_ids
        mixed = attention_kernel.attend(*vectors, ids, angles, drop, options)
        return mixed.reshape(q_BLHK.shape)

    kernel = constraints.by_heads(part)
    key_ids = mask.query_ids if mask.key_ids is None else mask.key_ids
    return kernel(q_BLHK, k_BMHK, v_BMHK, mask.query_ids, key_ids, keys, *mask.angles)


def splash(spec: Spec, mask: Mask, q_BLHK, k_BMHK, v_BMHK, keys, interpret: bool = False):
    """Computes attention by JAX's TPU kernel, which has no dropout. interpret: as in `fused`."""
    kernel = constraints.by_heads(partial(attention_splash.attend, spec, interpret=interpret))
    return kernel(q_BLHK, k_BMHK, v_BMHK, mask.query_ids)


def cudnn(spec: Spec, mask: Mask, q_BLHK, k_BMHK, v_BMHK, keys):
    """Computes attention by cuDNN's kernel, without dropout."""
    kernel = constraints.by_heads(partial(attention_cudnn.attend, spec))
    return kernel(q_BLHK, k_BMHK, v_BMHK, mask.query_ids)


IMPLEMENTATIONS: dict[str, Callable] = {
    "xla": xla,
    "fused": fused,
    "splash": splash,
    "cudnn": cudnn,
}

"""Multi-head attention: equivalent implementations, and the choice among them (`model.attention`).

B batch, L length, M memory length, H heads, K head size.

- `xla` is the reference (attention_xla.py). It supports every case and keeps all probabilities in memory.
- `fused` is this project's TPU kernel (attention_kernel.py). It reads whole rows, and rotates and drops out itself.
- `splash`, JAX's TPU kernel, and `cudnn`, a GPU kernel, compute blocks of probabilities, without dropout.

In all of them a real token attends only to real tokens of its own packed sequence, if attention is causal only to
itself and earlier ones, and with a window only to near ones. Then only blocks near the diagonal are computed; `cudnn`
has no windows. What a padding token attends to depends on the implementation, and affects neither loss nor gradients.

The choice is made per compiled program, from its devices, the length and packing of its rows, and whether it applies
attention dropout. So training and evaluation of one model may use different implementations.
"""

import math
import re
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu.splash_attention import (
    splash_attention_kernel as splash_kernels,
)
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as splash_masks
from jax.sharding import get_abstract_mesh

from bert_jax import prng
from bert_jax.errors import BadInput
from bert_jax.layers import attention_kernel, attention_xla, rotary
from bert_jax.layers.attention_kernel import BLOCK, LANES, LONGEST, LONGEST_LOCAL, block_size
from bert_jax.parallel import constraints

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
# cudnn was not timed beside xla; without packing it writes no array of all pairs of tokens.
SHORTEST = {"fused": 256, "splash": 384, "cudnn": 1}
# Kernels of TPUs before v5. fused compiles to five times as many instructions for a v4 as for a v5p.
OLD_TPUS = {"TPU v2": (), "TPU v3": (), "TPU v4": ("splash",)}
LOCAL = 256  # tokens per block of splash with a window, at most
WIDE = 2048  # keys per block of splash without one, at most
SPLASH = re.compile(r"splash_mha_(fwd|dq|dkv)")
PRODUCTS = {"fwd": 2, "dq": 3, "dkv": 4}  # over pairs of tokens, in splash's kernels


class Case(NamedTuple):
    """The attention of one compiled program, as far as the choice of an implementation depends on it."""

    device: str  # device kind, as JAX names it
    kernels: tuple[str, ...]  # of that device, by the compiler's estimate the fastest first
    length: int
    heads: int  # per device
    head_size: int
    dtype: str
    sequences: int  # packed in a row, at most
    dropout: float  # rate of attention dropout
    window: int = 0  # of local attention


def make(name, batch: dict, dropout: float, remat: bool, causal=False, window=0, angles=()):
    """Returns attend(q, k, v, keys) for the rows of a batch, see `attend`.

    name: `model.attention`.
    dropout: the rate on the probabilities.
    remat: whether the backward pass of `xla` recomputes the probabilities; kernels always do.
    causal, window, angles: see `attend`.

    The result is a pytree, so that it can be an argument of a function under `jax.checkpoint`.
    """
    function = partial(
        attend,
        name=local_name(name, window),
        sequences=batch["cls_positions"].shape[1],
        dropout=dropout,
        remat=remat,
        causal=causal,
        window=window,
    )
    return jax.tree_util.Partial(function, batch["sequence_ids"], angles)


def attend(
    sequence_ids,
    angles,
    q_BLHK,
    k_BMHK,
    v_BMHK,
    keys,
    *,
    name,
    sequences,
    dropout: float,
    remat: bool,
    causal: bool,
    window: int = 0,
):
    """Returns [B, L, H, K]: dropout(softmax(q k^T)) v, in the dtype of q.

    sequence_ids: int32[B, L], 0 for padding.
    angles: those of `rotary.angles`, by which queries and keys are rotated, or none.
    q_BLHK: the queries, already scaled by 1 / sqrt(K).
    keys: uint32[B], or None for no dropout.
    sequences: packed in a row, at most.
    causal: whether a token attends to no later one.
    window: local attention, to at most window / 2 tokens on each side; 0: to all.

    Raises BadInput if the implementation `name` does not support this.
    """
    if name == "count":  # for objectives.base.step_flops: a query has the keys of its window alone
        pattern = attention_xla.Pattern(causal, window, block=1)
        return attention_xla.attend(q_BLHK, k_BMHK, v_BMHK, sequence_ids, None, 0.0, pattern)
    if keys is None:
        dropout = 0.0
    _, length, heads, head_size = q_BLHK.shape
    heads //= constraints.tensor_parts()
    shape = length, heads, head_size, q_BLHK.dtype.name, sequences
    name = choose(name, Case(*device_and_kernels(), *shape, dropout, window))
    if angles and name != "fused":
        q_BLHK = rotary.rotate(q_BLHK, *angles)
        k_BMHK = rotary.rotate(k_BMHK, *angles)
    if name == "xla":
        pattern = attention_xla.Pattern(causal, window)
        compute = partial(attention_xla.attend, dropout=dropout, pattern=pattern)
        if remat:
            compute = jax.checkpoint(compute)
        return compute(q_BLHK, k_BMHK, v_BMHK, sequence_ids, keys)
    if name == "fused":
        if keys is None:
            keys = jnp.zeros(len(sequence_ids), jnp.uint32)
        options = attention_kernel.Options(head_size, dropout, causal, window)
        kernel = constraints.by_heads(partial(fused, options=options))
        return kernel(q_BLHK, k_BMHK, v_BMHK, sequence_ids, keys, *angles)
    if name == "splash":
        kernel = partial(splash, causal=causal, window=window)
    else:
        kernel = partial(cudnn, causal=causal, packed=sequences > 1)
    return constraints.by_heads(kernel)(q_BLHK, k_BMHK, v_BMHK, sequence_ids)


def resolve(config, phase, shapes: dict, mesh, window: int = 0) -> str:
    """Returns the implementation that trains a phase of a config on a mesh; raises BadInput like `choose`.

    shapes: of a batch. `config.dtype` must be resolved, not `auto`.
    """
    model = config.model
    case = Case(
        *device_and_kernels(mesh),
        length=phase.length,
        heads=model.heads // mesh.shape["tensor"],
        head_size=model.width // model.heads,
        dtype=config.dtype,
        sequences=shapes["cls_positions"].shape[1],
        dropout=model.get("attention_dropout", 0.0),
        window=window,
    )
    return choose(local_name(model.attention, window), case, f"phases.{phase.name}.")


def local_name(name: str, window: int) -> str:
    """Returns the implementation of layers with a window, if full ones have `name`."""
    return "xla" if window and name == "cudnn" else name


def choose(name: str, case: Case, phase: str = "") -> str:
    """Returns the implementation for a case: `name`, or for `auto` the first suitable kernel, or else `xla`.

    A kernel is suitable if it supports the case and the row is at least SHORTEST[kernel] tokens. `auto` never chooses
    cudnn for packed rows, for which it was neither timed nor run with deterministic operations. Raises BadInput if
    `name` does not support the case.

    phase: the prefix of the phase's keys in the message, such as `phases.main.`.
    """
    if name == "auto":
        for kernel in case.kernels:
            is_timed = kernel != "cudnn" or case.sequences == 1
            is_long = case.length >= SHORTEST[kernel]
            if is_timed and is_long and not list(refusals(kernel, case)):
                return kernel
        return "xla"
    reasons = list(refusals(name, case, phase))
    if reasons:
        raise BadInput(f"config.model.attention={name}: does not support {'; '.join(reasons)}")
    return name


def refusals(name: str, case: Case, phase: str = "") -> Iterator[str]:
    """Yields each property of a case that an implementation does not support."""
    if name == "xla":
        return
    if name not in case.kernels:
        yield f"{case.device}, only {DEVICES[name]}"
    if case.window and name == "cudnn":
        yield "local attention, only fused, splash and xla"
    if case.dropout and name != "fused":
        yield f"model.attention_dropout={case.dropout}, only 0"
    if name in ("fused", "splash") and case.length % LANES:
        yield f"{phase}length={case.length}, only multiples of {LANES}"
    if name == "fused":
        longest = LONGEST_LOCAL if case.window else LONGEST
        width = case.head_size * case.heads
        if case.length > longest:
            yield f"{phase}length={case.length}, only up to {longest}"
        if LANES % case.head_size:
            yield f"model.width/model.heads={case.head_size}, only divisors of {LANES}"
        if width % LANES:
            yield f"a width of {width} per device, only multiples of {LANES}"
    if name == "cudnn":
        if case.length % 2:
            yield f"{phase}length={case.length}, only even ones"
        if case.dtype not in ("bfloat16", "float16"):
            yield f"dtype={case.dtype}, only bfloat16"
        if case.head_size % 8 or case.head_size > 128:
            yield f"model.width/model.heads={case.head_size}, only multiples of 8 up to 128"


def device_and_kernels(mesh=None) -> tuple[str, tuple[str, ...]]:
    """Returns the device kind that a program is compiled for, and the attention kernels that it has.

    The devices are those of `mesh`, else of the mesh in context (both may be on another machine), else of this process.
    """
    mesh = mesh.abstract_mesh if mesh else get_abstract_mesh()
    device = mesh.abstract_device or jax.local_devices()[0]
    kind = device.device_kind
    if device.platform == "tpu":
        return kind, OLD_TPUS.get(kind, ("fused", "splash"))
    has_kernel = device.platform == "gpu" and has_cudnn(jax.local_devices()[0])
    return kind, ("cudnn",) if has_kernel else ()


def has_cudnn(device) -> bool:
    """Returns whether a device is an NVIDIA GPU, Ampere or newer."""
    is_cuda = "cuda" in device.client.platform_version
    return is_cuda and float(device.compute_capability) >= 8


# --- TPU ------------------------------------------------------------------------------------------


def fused(q_BLHK, k_BMHK, v_BMHK, sequence_ids, keys, *angles, options: attention_kernel.Options):
    """Computes attention by this project's TPU kernel, with dropout by keys uint32[B].

    The kernel rotates queries and keys by the angles, if there are any. Padding tokens attend to each other.
    """
    first_head = constraints.tensor_part() * q_BLHK.shape[2]
    drop = attention_kernel.Drop(prng.fold(keys, jnp.uint32(0)), first_head[None])
    vectors = (x.reshape(*x.shape[:2], -1) for x in (q_BLHK, k_BMHK, v_BMHK))
    mixed = attention_kernel.attend(*vectors, sequence_ids, angles, drop, options)
    return mixed.reshape(q_BLHK.shape)


def splash(
    q_BLHK,
    k_BMHK,
    v_BMHK,
    sequence_ids,
    causal: bool = False,
    window: int = 0,
    interpret: bool = False,
):
    """Computes attention by JAX's splash attention kernel.

    Padding tokens attend to each other, so that no softmax is over an empty set.

    interpret: whether Pallas emulates the kernel by plain operations, which works on any device.
    """
    _, length, heads, _ = q_BLHK.shape
    shape = length, length
    if window:
        half = window // 2
        mask = splash_masks.LocalMask(shape, (half, 0 if causal else half), offset=0)
    elif causal:
        mask = splash_masks.CausalMask(shape)
    else:
        mask = splash_masks.FullMask(shape)
    kernel = splash_kernels.make_splash_mha_single_device(
        splash_masks.MultiHeadMask([mask] * heads),
        block_sizes=block_sizes(length, window),
        interpret=interpret,
    )

    def attend_row(q_LHK, k_MHK, v_MHK, ids):
        q_HLK, k_HMK, v_HMK = (x.swapaxes(0, 1) for x in (q_LHK, k_MHK, v_MHK))
        mixed_HLK = kernel(q_HLK, k_HMK, v_HMK, splash_kernels.SegmentIds(ids, ids))
        return mixed_HLK.swapaxes(0, 1)

    return jax.vmap(attend_row)(q_BLHK, k_BMHK, v_BMHK, sequence_ids)


def block_sizes(length: int, window: int) -> splash_kernels.BlockSizes:
    """Returns splash's block sizes.

    Without a window, one backward kernel computes all three gradients, and the probabilities once. It writes a part of
    the queries' gradient for each block of keys, so these blocks are WIDE, in parts of the usual size. With a window,
    two kernels visit only the blocks near the diagonal. The layout puts tokens along the 128 lanes, of which a head
    size of 64 would fill only half, in registers and in memory.
    """
    if window:
        size = block_size(length, LOCAL)
        keys = size
        dq_size = size
    else:
        size = block_size(length, BLOCK)
        keys = block_size(length, WIDE // size * size, size)
        dq_size = None
    return splash_kernels.BlockSizes(
        block_q=size,
        block_kv=size,
        block_q_dkv=size,
        block_kv_dkv=keys,
        block_kv_dkv_compute=size,
        block_q_dq=dq_size,
        block_kv_dq=dq_size,
        use_fused_bwd_kernel=not window,
        q_layout=splash_kernels.QKVLayout.SEQ_MINOR,
        k_layout=splash_kernels.QKVLayout.SEQ_MINOR,
        v_layout=splash_kernels.QKVLayout.SEQ_MINOR,
    )


def splash_flops(name: str, operands: list[tuple], results: list[tuple]) -> int:
    """Returns the FLOPs of a kernel of splash attention, by the blocks that it visits; 0 for other kernels.

    name: of the kernel.
    operands: their shapes. The first is [1, blocks of queries, square blocks of keys that each visits], or with the
        last two swapped. The first of four axes is that of the queries, [rows, heads, size, tokens].
    results: their shapes. A backward kernel for all three gradients has parts of a gradient, with five axes. It has one
        more product, and visits all pairs.
    """
    kernel = SPLASH.match(name)
    if not kernel:
        return 0
    rows, heads, size, length = next(shape for shape in operands if len(shape) == 4)
    products = PRODUCTS[kernel[1]]
    if any(len(shape) == 5 for shape in results):
        products += 1
        pairs = length**2
    else:
        _, *counts = operands[0]
        block = length // max(counts)
        pairs = math.prod(counts) * block**2
    return products * 2 * rows * heads * size * pairs


# --- GPU ------------------------------------------------------------------------------------------


def cudnn(q_BLHK, k_BMHK, v_BMHK, sequence_ids, causal=False, packed=False, implementation="cudnn"):
    """Computes attention by cuDNN's kernel.

    packed: whether a row may have several sequences. Then a mask of all pairs of tokens, the same for all heads, is in
        memory, and in the backward pass its gradient. Otherwise the padding is at the end, and in a row without real
        tokens all attend to the first position, so that no softmax is over an empty set.
    implementation: of `jax.nn.dot_product_attention`; `xla` computes the same on any device.
    """
    mask = None
    lengths = None
    if packed:
        mask = attention_xla.attention_mask(sequence_ids, sequence_ids, attention_xla.Pattern())
    else:
        lengths = jnp.sum(sequence_ids > 0, axis=1, dtype=jnp.int32)
        lengths = jnp.maximum(lengths, 1)
    return jax.nn.dot_product_attention(
        q_BLHK,
        k_BMHK,
        v_BMHK,
        mask=mask,
        key_value_seq_lengths=lengths,
        scale=1.0,
        is_causal=causal,
        implementation=implementation,
    )

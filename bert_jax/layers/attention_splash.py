"""Attention by JAX's splash kernel, for TPUs.

B batch, L length, M memory length, H heads, K head size.
"""

import math
import re

import jax
from jax.experimental.pallas.ops.tpu.splash_attention import (
    splash_attention_kernel as splash_kernels,
)
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as splash_masks

from bert_jax.layers.attention_kernel import BLOCK, block_size
from bert_jax.layers.attention_spec import Spec

LOCAL = 256  # tokens per block with a window, at most
WIDE = 2048  # keys per block without one, at most
NAME = re.compile(r"splash_mha_(fwd|dq|dkv)")
PRODUCTS = {"fwd": 2, "dq": 3, "dkv": 4}  # over pairs of tokens


def attend(spec: Spec, q_BLHK, k_BMHK, v_BMHK, sequence_ids, interpret: bool):
    """Computes attention within sequence_ids int32[B, L]; see `attention.attend`.

    Padding tokens attend to each other, so that no softmax is over an empty set.

    interpret: whether Pallas emulates the kernel by plain operations, which works on any device.
    """
    _, length, heads, _ = q_BLHK.shape
    shape = length, length
    if spec.window:
        half = spec.window // 2
        mask = splash_masks.LocalMask(shape, (half, 0 if spec.causal else half), offset=0)
    elif spec.causal:
        mask = splash_masks.CausalMask(shape)
    else:
        mask = splash_masks.FullMask(shape)
    kernel = splash_kernels.make_splash_mha_single_device(
        splash_masks.MultiHeadMask([mask] * heads),
        block_sizes=block_sizes(length, spec.window),
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


def flops(name: str, operands: list[tuple], results: list[tuple]) -> int:
    """Returns the FLOPs of a kernel of splash attention, by the blocks that it visits; 0 for other kernels.

    name: of the kernel.
    operands: their shapes. The first is [1, blocks of queries, square blocks of keys that each visits], or with the
        last two swapped. The first of four axes is that of the queries, [rows, heads, size, tokens].
    results: their shapes. A backward kernel for all three gradients has parts of a gradient, with five axes. It has one
        more product, and visits all pairs.
    """
    kernel = NAME.match(name)
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

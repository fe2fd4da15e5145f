"""Multi-head attention in several ways that agree, and which of them a program uses: `model.attention` of a config.

B batch, L length, M memory length, H heads, K head size.

`xla` is the plain way and can do all; it holds the probabilities of all pairs of tokens. `fused`, this project's kernel
for TPUs (attention_kernel.py), holds those of one row and head at a time, and drops some; `splash`, another for TPUs,
and `cudnn`, one for GPUs, hold those of a block, and drop none. None lets a token see other tokens than the real ones
of its own sequence. What tokens of padding see differs from one to the other, and reaches nothing.

The choice belongs to a program, not to what is trained: it follows from the devices that the program is for, the length
and packing of its rows, and whether it drops probabilities, so that training and evaluation may differ in it.
"""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as kernels
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

from bert_jax import prng
from bert_jax.errors import BadInput
from bert_jax.models import attention_kernel, layers
from bert_jax.models.attention_kernel import LANES, LONGEST
from bert_jax.parallel import constraints

DEVICES = {
    "fused": "TPUs from v5 on",
    "splash": "TPUs from v4 on",
    "cudnn": "GPUs of NVIDIA from Ampere on",
}
# Length from which `auto` takes a kernel. Of BERT-base on v5e, 8,192 tokens without attention dropout, a layer takes by
# xla, as the compiler says, and by splash, with the counted instructions of its kernels, 4.3 and 6.0 million
# cycles at 128, 5.8 and 6.0 at 256, 6.8 and 6.0 at 384, 8.3 and 6.1 at 512. By fused, with attention dropout, a model
# of two layers takes 15.8 million at 128, 15.4 by xla. cudnn was never timed here; at no length does it write anything
# of the size of all pairs to memory.
SHORTEST = {"fused": 256, "splash": 384, "cudnn": 1}


class Case(NamedTuple):
    """What a program asks of attention."""

    device: str  # the kind of device that it is for
    kernels: tuple[str, ...]  # such devices have; of a TPU's the faster first, by the compiler
    length: int
    heads: int  # on a device
    head_size: int
    dtype: str
    sequences: int  # packed in a row, at most
    dropout: float  # of probabilities
    is_biased: bool = False  # whether something is added to the scores


def make(kind: str, batch: dict, dropout: float, remat: bool):
    """attend(q, k, v, bias, keys) for the rows of a batch, see `attend`; one that also goes through `jax.checkpoint`.

    kind: `model.attention`. With `remat` the backward pass of the plain way computes the probabilities again; no other
    keeps them.
    """
    sequences = batch["cls_positions"].shape[1]
    function = partial(attend, kind=kind, sequences=sequences, dropout=dropout, remat=remat)
    return jax.tree_util.Partial(function, batch["sequence_ids"])


def attend(
    sequence_ids,
    q_BLHK,
    k_BMHK,
    v_BMHK,
    bias,
    keys,
    *,
    kind,
    sequences,
    dropout: float,
    remat: bool,
):
    """Vectors [B, L, H, K]: values weighted by the softmax, and its dropout, of scores.

    sequence_ids int32[B, L]; bias float[B or 1, H, L, M] or None; keys uint32[B], or None where nothing is dropped.
    Queries come scaled. Raises BadInput where the implementation that is asked for cannot do it.
    """
    dropout = 0.0 if keys is None else dropout
    _, length, heads, head_size = q_BLHK.shape
    shape = length, heads // constraints.tensor_parts(), head_size, q_BLHK.dtype.name, sequences
    kind = choose(kind, Case(*devices_of(), *shape, dropout, bias is not None))
    if kind == "xla":
        core = partial(plain, dropout=dropout)
        core = jax.checkpoint(core) if remat else core
        return core(q_BLHK, k_BMHK, v_BMHK, sequence_ids, bias, keys)
    if kind == "fused":
        keys = jnp.zeros(len(sequence_ids), jnp.uint32) if keys is None else keys
        kernel = constraints.by_heads(partial(fused, rate=dropout))
        return kernel(q_BLHK, k_BMHK, v_BMHK, sequence_ids, keys)
    kernel = {"splash": splash, "cudnn": cudnn}[kind]
    return constraints.by_heads(kernel)(q_BLHK, k_BMHK, v_BMHK, sequence_ids)


def resolve(config, phase, mesh) -> str:
    """The implementation by which a phase of a config is trained on a mesh; raises BadInput as `choose`.

    The dtype of the config is resolved.
    """
    model = config.model
    heads = model.heads // mesh.shape["tensor"]
    shape = phase.length, heads, model.width // model.heads, config.dtype, phase.max_packed
    case = Case(*devices_of(mesh), *shape, model.attention_dropout)
    return choose(model.attention, case, f"phases.{phase.name}.")


def choose(kind: str, case: Case, phase: str = "") -> str:
    """The implementation of a case: the one that is asked for and able to do it, or for `auto` the first kernel that
    is, from its SHORTEST on.

    phase: where its length and sequences stand, such as `phases.main.`, for the message.
    """
    if kind == "auto":
        able = (one for one in case.kernels if not list(refusals(one, case)))
        return next((one for one in able if case.length >= SHORTEST[one]), "xla")
    reasons = list(refusals(kind, case, phase))
    if reasons:
        raise BadInput(f"config.model.attention={kind}: cannot do {'; '.join(reasons)}")
    return kind


def refusals(kind: str, case: Case, phase: str = "") -> Iterator[str]:
    """What of a case an implementation cannot do."""
    if kind == "xla":
        return
    if kind not in case.kernels:
        yield f"{case.device}, only {DEVICES[kind]}"
    if case.dropout and kind != "fused":
        yield f"model.attention_dropout={case.dropout}, only 0"
    if case.is_biased:
        yield "biased scores"
    if kind in ("fused", "splash") and case.length % LANES:
        yield f"{phase}length={case.length}, only multiples of {LANES}"
    if kind == "fused" and case.length > LONGEST:
        yield f"{phase}length={case.length}, only up to {LONGEST}"
    if kind == "fused" and LANES % case.head_size:
        yield f"model.width/model.heads={case.head_size}, only what divides {LANES}"
    if kind == "fused" and case.head_size * case.heads % LANES:
        yield f"a width of {case.head_size * case.heads} on a device, only multiples of {LANES}"
    if kind == "cudnn" and case.sequences > 1:
        yield f"{phase}sequences={case.sequences}, only 1"
    if kind == "cudnn" and case.dtype not in ("bfloat16", "float16"):
        yield f"dtype={case.dtype}, only bfloat16"
    if kind == "cudnn" and (case.head_size % 8 or case.head_size > 128):
        yield f"model.width/model.heads={case.head_size}, only multiples of 8 up to 128"


def devices_of(mesh=None) -> tuple[str, tuple[str, ...]]:
    """The kind of the devices of a mesh, or of the one in use, which need not be here, or else of this process; and the
    kernels that they have."""
    mesh = mesh.abstract_mesh if mesh else jax.sharding.get_abstract_mesh()
    device = mesh.abstract_device or jax.local_devices()[0]
    kind = device.device_kind
    if device.platform == "tpu":
        # Of fused, a v4 makes five times as many instructions as a v5p.
        few = {"TPU v2": (), "TPU v3": (), "TPU v4": ("splash",)}
        return kind, few.get(kind, ("fused", "splash"))
    has_kernel = device.platform == "gpu" and has_cudnn(jax.local_devices()[0])
    return kind, ("cudnn",) if has_kernel else ()


def has_cudnn(device) -> bool:
    """Whether a GPU is one of NVIDIA, from the generation Ampere on."""
    is_cuda = "cuda" in device.client.platform_version
    return is_cuda and float(device.compute_capability) >= 8


# --- The plain way --------------------------------------------------------------------------------


def visible(sequence_ids):
    """int32[B, L] -> bool[B, 1, L, M]: a token sees the real tokens of its own sequence."""
    same = sequence_ids[:, None, :, None] == sequence_ids[:, None, None, :]
    return same & (sequence_ids > 0)[:, None, None, :]


def plain(q_BLHK, k_BMHK, v_BMHK, sequence_ids, bias, keys, *, dropout: float):
    scores_BHLM = jnp.einsum("blhk,bmhk->bhlm", q_BLHK, k_BMHK, preferred_element_type=jnp.float32)
    if bias is not None:
        scores_BHLM = scores_BHLM + bias
    scores_BHLM = jnp.where(visible(sequence_ids), scores_BHLM, layers.MASKED)
    probabilities_BHLM = nn.softmax(scores_BHLM).astype(q_BLHK.dtype)
    probabilities_BHLM = layers.maybe_dropout(probabilities_BHLM, keys, 0, dropout)
    return jnp.einsum("bhlm,bmhk->blhk", probabilities_BHLM, v_BMHK)


# --- TPU ------------------------------------------------------------------------------------------


def fused(q_BLHK, k_BMHK, v_BMHK, sequence_ids, keys, rate: float, interpret: bool = False):
    """By this project's kernel, with dropout. Tokens of padding see each other. interpret: as of `splash`."""
    heads, size = q_BLHK.shape[2:]
    first = constraints.tensor_part() * heads
    drop = attention_kernel.Drop(prng.fold(keys, jnp.uint32(0)), first[None])
    vectors = (x.reshape(*x.shape[:2], -1) for x in (q_BLHK, k_BMHK, v_BMHK))
    result = attention_kernel.attend(*vectors, sequence_ids, drop, size, rate, interpret)
    return result.reshape(q_BLHK.shape)


def splash(q_BLHK, k_BMHK, v_BMHK, sequence_ids, interpret: bool = False):
    """By the splash kernel of JAX. Tokens of padding see each other, so that no softmax is over nothing.

    interpret: by plain operations, on any devices.
    """
    _, length, heads, _ = q_BLHK.shape
    mask = masks.MultiHeadMask([masks.FullMask((length, length))] * heads)
    kernel = kernels.make_splash_mha_single_device(
        mask, block_sizes=block_sizes(length), interpret=interpret
    )

    def of_row(q_LHK, k_MHK, v_MHK, ids):
        q_HLK, k_HMK, v_HMK = (x.swapaxes(0, 1) for x in (q_LHK, k_MHK, v_MHK))
        return kernel(q_HLK, k_HMK, v_HMK, kernels.SegmentIds(ids, ids)).swapaxes(0, 1)

    return jax.vmap(of_row)(q_BLHK, k_BMHK, v_BMHK, sequence_ids)


def block_size(length: int) -> int:
    """Tokens, the same of queries and keys: whole rows up to LONGEST.

    A step of a kernel with blocks of 512 has less than five times the instructions of one with 128, for 16 times the
    work (benchmarks/LOG.md has the numbers).
    """
    return next(size for size in range(LONGEST, 0, -LANES) if length % size == 0)


def block_sizes(length: int) -> kernels.BlockSizes:
    """With queries, keys and values of a row all there, one backward kernel makes the gradients of all three, and
    computes the probabilities once. Tokens go along lanes: a head of 64 would fill half of them, in memory, too."""
    size = block_size(length)
    return kernels.BlockSizes(
        block_q=size,
        block_kv=size,
        block_q_dkv=size,
        block_kv_dkv=size,
        use_fused_bwd_kernel=True,
        q_layout=kernels.QKVLayout.SEQ_MINOR,
        k_layout=kernels.QKVLayout.SEQ_MINOR,
        v_layout=kernels.QKVLayout.SEQ_MINOR,
    )


# --- GPU ------------------------------------------------------------------------------------------


def cudnn(q_BLHK, k_BMHK, v_BMHK, sequence_ids, implementation: str = "cudnn"):
    """By the kernel of cuDNN, for rows of one sequence, whose real tokens are the first.

    A row of padding sees its first token, so that no softmax is over nothing. implementation: of
    `jax.nn.dot_product_attention`; xla computes the same on any devices.
    """
    real = jnp.sum(sequence_ids > 0, axis=1, dtype=jnp.int32)
    return jax.nn.dot_product_attention(
        q_BLHK,
        k_BMHK,
        v_BMHK,
        scale=1.0,
        key_value_seq_lengths=jnp.maximum(real, 1),
        implementation=implementation,
    )

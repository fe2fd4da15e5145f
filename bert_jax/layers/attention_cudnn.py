"""Attention by cuDNN's kernel, for NVIDIA GPUs.

B batch, L length, H heads, K head size.
"""

import jax
import jax.numpy as jnp

from bert_jax.errors import BadInput
from bert_jax.layers.attention_spec import Mask, Spec
from bert_jax.layers.attention_xla import attention_mask


def attend(spec: Spec, q_BLHK, k_BMHK, v_BMHK, sequence_ids, implementation="cudnn"):
    """Computes attention within sequence_ids int32[B, L]; see `attention.attend`.

    If a row may have several sequences, or with a window, a mask of all pairs of tokens, the same for all heads, is in
    memory, and in the backward pass its gradient. Otherwise the padding is at the end, and in a row without real tokens
    all attend to the first position, so that no softmax is over an empty set.

    implementation: of `jax.nn.dot_product_attention`; `xla` computes the same on any device.

    Raises BadInput if cuDNN is not installed.
    """
    mask = None
    lengths = None
    if spec.sequences != 1 or spec.window:
        mask = attention_mask(Mask(sequence_ids), spec._replace(causal=False))
    else:
        lengths = jnp.sum(sequence_ids > 0, axis=1, dtype=jnp.int32)
        lengths = jnp.maximum(lengths, 1)
    try:
        return jax.nn.dot_product_attention(
            q_BLHK,
            k_BMHK,
            v_BMHK,
            mask=mask,
            key_value_seq_lengths=lengths,
            scale=1.0,
            is_causal=spec.causal,
            implementation=implementation,
        )
    except RuntimeError as error:
        if "cuDNN is not detected" not in str(error):
            raise
        raise BadInput(
            "config.model.attention: cuDNN, which cudnn and on GPUs auto need, is not installed; run"
            " pip install -c constraints.txt -e '.[gpu]' or set it to xla"
        ) from None

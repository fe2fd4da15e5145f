"""Muon on the kernels of blocks, and AdamW on all other parameters: embeddings, heads, biases and norms.

Muon (https://kellerjordan.github.io/posts/muon) has one moment. Its update of a matrix is the moment with singular
values of about 1, by Newton-Schulz iterations; its size does not depend on that of the gradient. It is scaled to the
RMS of AdamW's updates, about 0.2, so that both have one learning rate and one weight decay (arXiv:2502.16982, section
2.2).

A matrix is a kernel of a layer: query, key and value of all heads, and both inputs of a gate, are orthogonalized by
themselves, as in both sources.
"""

from functools import partial

import jax
import jax.numpy as jnp
import optax
from optax import contrib

from bert_jax.checks import check_keys
from bert_jax.models import base as models
from bert_jax.optimizers import adam
from bert_jax.parallel.mesh import path_name

RMS = 0.2  # of the updates of a matrix
DEFAULTS = {
    **adam.DEFAULTS,
    "bias_correction": True,  # whether to correct the bias of Adam's moments
    # data type of Muon's moment and of Adam's first one: float32, or bfloat16 for half of its memory
    "moment_dtype": "float32",
    "momentum": 0.95,  # decay rate of Muon's moment
    # whether Muon orthogonalizes the moment after another step with the same gradient
    "nesterov": True,
    "newton_schulz_steps": 5,  # iterations that orthogonalize a matrix
}


def check(config) -> None:
    adam.check(config)
    steps = "optimizer.newton_schulz_steps"
    check_keys(config, shares=["optimizer.momentum"], at_least_one=[steps])


def make(config, peak) -> optax.GradientTransformationExtraArgs:
    decay = partial(models.decayed, config)
    muon = optax.chain(
        orthogonalize(config), optax.add_decayed_weights(config.optimizer.weight_decay, decay)
    )
    return optax.partition({"muon": muon, "adam": adam.make(config, peak)}, label)


def label(params):
    """Returns a tree of the names of the optimizers of parameters: `muon` for matrices, the kernels of blocks with two
    axes, otherwise `adam`."""

    def choose(path, leaf) -> str:
        name = path_name(path)
        is_kernel = "/blocks_" in name and name.endswith("/kernel")
        return "muon" if is_kernel and leaf.ndim == 2 else "adam"

    return jax.tree.map_with_path(choose, params)


def orthogonalize(config) -> optax.GradientTransformation:
    """Returns Muon without a rate, for trees of matrices. As in adam.py, its moment is updated in float32.

    The bias of the moment needs no correction, also in a layer that is trained from a later step on: a factor of the
    moment changes nothing about its singular vectors.
    """
    keys = config.optimizer
    muon = contrib.scale_by_muon(
        ns_steps=keys.newton_schulz_steps,
        beta=keys.momentum,
        mu_dtype=keys.moment_dtype,
        nesterov=keys.nesterov,
        weight_dimension_numbers=as_matrices,
    )

    def update(gradients, state, params=None):
        state = state._replace(mu=optax.tree.cast(state.mu, jnp.float32))
        updates, state = muon.update(gradients, state)
        # With singular values of 1, the RMS of a matrix is 1 / sqrt(its longer axis).
        return jax.tree.map(lambda u: RMS * max(u.shape) ** 0.5 * u, updates), state

    return optax.GradientTransformation(muon.init, update)


def as_matrices(tree):
    """Returns the axes of matrices [I, O], of inputs and outputs, for optax."""
    return jax.tree.map(lambda _: contrib.MuonDimensionNumbers(0, 1), tree)

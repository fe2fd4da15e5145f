"""The floating-point operations of a training step, counted in the program of its forward pass."""

import math

import jax
from jax.extend import core


def train_step(loss, *shapes) -> float:
    """Returns the FLOPs of the matrix products of a step: three times those of the forward pass.

    loss: a function of arrays, traced on `shapes`, trees of jax.ShapeDtypeStruct. It must compute attention by `xla`,
    since products inside of kernels are not seen. The backward pass has two products for each of the forward pass. What
    it recomputes (`train.remat`) is not counted. Products that are computed and then masked are: attention between
    packed sequences, and to later tokens.
    """
    return 3.0 * products(jax.make_jaxpr(loss)(*shapes).jaxpr)


def products(jaxpr) -> int:
    """Returns the FLOPs of the matrix products of a jaxpr: 2 x size of the result x contracted size of each."""
    total = 0
    for equation in jaxpr.eqns:
        name, parameters = equation.primitive.name, equation.params
        parts = [products(part) for part in core.jaxprs_in_params(parameters)]
        if name == "dot_general":
            (contracted, _), _ = parameters["dimension_numbers"]
            shape = equation.invars[0].aval.shape
            total += 2 * equation.outvars[0].aval.size * math.prod(shape[i] for i in contracted)
        elif name == "cond":
            total += max(parts)
        else:  # the body of a loop of unknown length counts once
            total += sum(parts) * parameters.get("length", 1) if name == "scan" else sum(parts)
    return total

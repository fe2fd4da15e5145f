"""Counts the floating-point operations of a training step, in the program of its forward pass, and the parameters."""

import math

import jax
from jax.extend import core

from bert_jax.parallel.mesh import path_name

PADDED = ("embedder/words", "lm/bias")  # ends of the paths of parameters that pad the vocabulary


def step_flops(loss, *shapes) -> float:
    """Returns the FLOPs of the matrix products of a step: three times those of the forward pass.

    loss: a function of arrays, traced on `shapes`, trees of jax.ShapeDtypeStruct. Its attention must be `is_counted`,
    since products inside of kernels are not seen, and blocks have products outside of a window. The backward pass has
    two products for each of the forward pass. What it recomputes (`train.remat`) is not counted. Products whose result
    is masked are counted: attention between packed sequences, and to later tokens.
    """
    return 3.0 * products(jax.make_jaxpr(loss)(*shapes).jaxpr)


def products(jaxpr) -> int:
    """Returns the FLOPs of the matrix products and convolutions of a jaxpr: 2 x size of the result x number of summed
    products of each."""
    total = 0
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        parameters = equation.params
        parts = [products(part) for part in core.jaxprs_in_params(parameters)]
        if name == "conv_general_dilated":
            kernel = equation.invars[1].aval
            outputs = kernel.shape[parameters["dimension_numbers"].rhs_spec[0]]
            total += 2 * equation.outvars[0].aval.size * kernel.size // outputs
        elif name == "dot_general":
            (contracted, _), _ = parameters["dimension_numbers"]
            shape = equation.invars[0].aval.shape
            terms = math.prod(shape[axis] for axis in contracted)
            total += 2 * equation.outvars[0].aval.size * terms
        elif name == "cond":
            total += max(parts)
        elif name == "scan":
            total += sum(parts) * parameters["length"]
        else:  # the body of a loop of unknown length counts once
            total += sum(parts)
    return total


def parameters(params, vocabulary: int, body: tuple[str, ...]) -> dict[str, int]:
    """Returns the numbers of parameters of the model and of its body, under their keys in run.json."""
    return {
        "parameters": count(params, vocabulary),
        "encoder_parameters": count(params, vocabulary, tuple(f"{subtree}/" for subtree in body)),
    }


def count(params, vocabulary: int, beginnings: tuple[str, ...] = ("",)) -> int:
    """Returns the number of parameters whose paths begin so, without the rows that pad the vocabulary."""
    total = 0
    for path, leaf in jax.tree.leaves_with_path(params):
        if not path_name(path).startswith(beginnings):
            continue
        total += leaf.size
        if path_name(path).endswith(PADDED):
            total -= leaf.size * (leaf.shape[0] - vocabulary) // leaf.shape[0]
    return total

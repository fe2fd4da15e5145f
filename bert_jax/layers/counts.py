"""Counts the floating-point operations of a training step, in the program of its forward pass, and the parameters."""

import math

from jax.extend import core

from bert_jax.parallel.mesh import by_path

PADDED = ("embedder/words", "lm/bias")  # ends of the paths of parameters that pad the vocabulary


def products(jaxpr, trained=()) -> int:
    """Returns the FLOPs of the matrix products of a jaxpr: 2 x size of the result x number of summed products of each,
    and in the backward pass as many for each factor that depends on what is trained.

    trained: whether each argument, from the first one on, depends on it.
    """
    variables = {id(x) for x, is_trained in zip(jaxpr.invars, trained, strict=False) if is_trained}
    total = 0
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        parameters = equation.params
        inputs = [id(x) in variables for x in equation.invars]
        if any(inputs) and name != "stop_gradient":
            variables.update(map(id, equation.outvars))
        if name == "scan":  # what one pass hands to the next may depend on all
            first = parameters["num_consts"]
            count = parameters["num_carry"]
            inputs[first : first + count] = [any(inputs)] * count
        # Branches have all arguments but the first one.
        called = core.jaxprs_in_params(parameters)
        parts = [products(part, inputs[-len(part.invars) :]) for part in called]
        passes = 1 + sum(inputs)
        if name == "dot_general":
            (contracted, _), _ = parameters["dimension_numbers"]
            shape = equation.invars[0].aval.shape
            terms = math.prod(shape[axis] for axis in contracted)
            total += 2 * passes * equation.outvars[0].aval.size * terms
        elif name == "cond":
            total += max(parts)
        elif name == "scan":
            total += sum(parts) * parameters["length"]
        else:  # the body of a loop of unknown length counts once
            total += sum(parts)
    return total


def count(params, vocabulary: int, beginnings: tuple[str, ...] = ("",)) -> int:
    """Returns the number of parameters whose paths begin so, without the rows that pad the vocabulary."""
    total = 0
    for path, leaf in by_path(params).items():
        if not path.startswith(beginnings):
            continue
        total += leaf.size
        if path.endswith(PADDED):
            total -= leaf.size * (leaf.shape[0] - vocabulary) // leaf.shape[0]
    return total

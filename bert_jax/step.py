"""One step as pure functions of state and batch: init, train, evaluate."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from bert_jax import prng, step_guard


class State(NamedTuple):
    """The training state."""

    step: jax.Array  # int32[], completed steps
    params: Any
    opt_state: step_guard.Guarded


def init(objective, optimizer, seed: int, batch) -> State:
    """Returns the state before the first step."""
    params = objective.init(jax.random.key(seed), batch)
    opt_state = step_guard.guarded(optimizer.init(params))
    return State(jnp.zeros((), jnp.int32), params, opt_state)


class StepOptions(NamedTuple):
    """How a step computes its gradient, and what of it is applied."""

    micro_batches: int = 1
    # A decorator for a function `f(batch, *others)` that sums over rows. The decorated function sums over each device's
    # own rows, and then adds the sums of the devices (`mesh.summed`). If None, the compiler distributes the sum.
    summed: Callable | None = None
    # (step, new, old) -> the parameters `new`, with those of `old` that are not trained at the step.
    select: Callable = lambda step, new, old: new
    # Decides whether the step is applied. If not, only its number changes, and the metrics have weight 0.
    judge: Callable = step_guard.judge
    apply_if: Callable = step_guard.apply_if


DEFAULTS = StepOptions()


def train(state: State, batch, *, objective, optimizer, seed: int, options=DEFAULTS):
    """Returns (state, {metric: (sum, weight)}, verdict) after one step. The gradient is that of the whole batch, for
    any number of micro-batches."""
    key = prng.fold(jnp.uint32(prng.key(seed)), state.step.astype(jnp.uint32))

    def sums(batch, params, totals, key, number):
        def part(params, rows):
            # Parameters that are not trained have no gradient, and do not count in its norm.
            params = options.select(number, params, jax.lax.stop_gradient(params))
            return objective.loss(params, rows, totals, key, train=True)

        differentiate = jax.value_and_grad(part, has_aux=True)
        function = partial(differentiate, params)
        return sum_micro_batches(function, batch, options.micro_batches)

    if options.summed:
        sums = options.summed(sums)
    totals = objective.weights(batch)
    (loss, metrics), gradients = sums(batch, state.params, totals, key, state.step)
    gradient_norm = optax.tree.norm(gradients)
    verdict, band = options.judge(state.opt_state, loss, gradient_norm)

    def apply(params, inner):
        updates, inner = optimizer.update(
            gradients, inner, params, step=state.step, gradient_norm=gradient_norm
        )
        return options.select(state.step, optax.apply_updates(params, updates), params), inner

    old = state.params, state.opt_state.inner
    params, inner = options.apply_if(verdict.is_applied, apply, old)
    metrics |= {
        "loss": (loss, 1.0),
        "gradient_norm": (gradient_norm, 1.0),
        "real_token_share": real_token_share(batch),
    }
    metrics = jax.tree.map(jnp.float32, metrics)
    zeros = jax.tree.map(jnp.zeros_like, metrics)
    metrics = step_guard.choose(verdict.is_applied, metrics, zeros)
    metrics["skipped"] = 1.0 - jnp.float32(verdict.is_applied), jnp.float32(1.0)
    metrics["spikes"] = jnp.float32(verdict.is_spike), jnp.float32(1.0)
    opt_state = step_guard.Guarded(inner, band, verdict.bad_in_a_row)
    return State(state.step + 1, params, opt_state), metrics, verdict


def sum_micro_batches(function, batch, count: int):
    """Returns the sum of function(micro-batch) over `count` strided micro-batches, computed one after the other."""
    if count == 1:
        return function(batch)

    def split(x):
        # A contiguous split would make XLA gather the batch and compute every row on every device.
        return x.reshape(x.shape[0] // count, count, *x.shape[1:]).swapaxes(0, 1)

    def add(sums, rows):
        return jax.tree.map(jnp.add, sums, function(rows)), None

    parts = jax.tree.map(split, batch)
    first = jax.tree.map(lambda x: x[0], parts)
    shapes = jax.eval_shape(function, first)
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    sums, _ = jax.lax.scan(add, zeros, parts)
    return sums


def real_token_share(batch):
    """Returns (number of real tokens, number of positions, padding included) of all sequences, see data/batch.py."""
    masks = [ids > 0 for name, ids in batch.items() if name.endswith("sequence_ids")]
    counts = [is_real.sum(dtype=jnp.float32) for is_real in masks]
    return jax.tree.reduce(jnp.add, counts), jnp.float32(sum(mask.size for mask in masks))


def evaluate(params, batch, *, objective, with_outputs: bool = False, samples: int = 0):
    """Returns ({metric: (sum, weight)}, {term: (sum, total)}, outputs, guesses) of one batch, without dropout; rows of
    weight 0 do not count. The outputs are those of the objective, or {} without `with_outputs`; the guesses are those
    of the first `samples` rows, or {}.

    For several batches, first add up the sums and the totals of each term; the loss is then the sum of sum / total over
    the terms.
    """
    totals = objective.weights(batch)
    _, metrics = objective.loss(params, batch, totals, jnp.uint32(prng.EVALUATION), train=False)
    terms = {term: (metrics[f"{term}_loss"][0], total) for term, total in totals.items()}
    # The compiler computes the forward pass once for both.
    has_guesses = samples and objective.guesses
    outputs = objective.outputs(params, batch) if with_outputs or has_guesses else {}
    guesses = {}
    if has_guesses:
        first = jax.tree.map(lambda array: array[:samples], (outputs, batch))
        is_real = (first[1]["sequence_ids"] > 0) & (first[1]["row_weights"][:, None] > 0)
        guesses = objective.guesses(*first) | {"is_real": is_real}
    metrics, terms = jax.tree.map(jnp.float32, (metrics, terms))
    return metrics, terms, outputs if with_outputs else {}, guesses

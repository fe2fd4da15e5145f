"""One step as pure functions of state and batch: init, train, evaluate."""

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
    return State(jnp.zeros((), jnp.int32), params, step_guard.guarded(optimizer.init(params)))


def train(
    state: State,
    batch,
    *,
    objective,
    optimizer,
    seed: int,
    micro_batches: int,
    summed=None,
    select=None,
    judge=step_guard.judge,
):
    """Returns (state, {metric: (sum, weight)}, verdict) after one step. The gradient is that of the whole batch, for
    any number of micro-batches.

    summed: a decorator for a function `f(batch, *others)` that sums over rows. The decorated function sums over each
    device's own rows, and then adds the sums of the devices (`mesh.summed`). If None, the compiler distributes the sum.
    select: (gradients, step) -> gradients without those of layers that are not trained yet; or None.
    judge: decides whether the step is applied. If not, only the step number changes, and the metrics have weight 0.
    """
    key = prng.fold(jnp.uint32(prng.key(seed)), state.step.astype(jnp.uint32))

    def sums(batch, params, totals, key):
        def part(params, rows):
            return objective.loss(params, rows, totals, key, train=True)

        differentiate = jax.value_and_grad(part, has_aux=True)
        return sum_micro_batches(lambda rows: differentiate(params, rows), batch, micro_batches)

    sums = summed(sums) if summed else sums
    (loss, metrics), gradients = sums(batch, state.params, objective.weights(batch), key)
    gradients = select(gradients, state.step) if select else gradients
    gradient_norm = optax.tree.norm(gradients)
    guarded = state.opt_state
    verdict, band = judge(guarded, loss, gradient_norm)

    def apply(params, inner):
        updates, inner = optimizer.update(
            gradients, inner, params, step=state.step, gradient_norm=gradient_norm
        )
        return optax.apply_updates(params, updates), inner

    # `cond` computes only the chosen branch. `where` would hold both results in memory and be rounded differently.
    before = state.params, guarded.inner
    params, inner = jax.lax.cond(verdict.is_applied, apply, lambda *same: same, *before)
    metrics["loss"] = loss, 1.0
    metrics["gradient_norm"] = gradient_norm, 1.0
    metrics["real_token_share"] = real_token_share(batch)
    metrics = jax.tree.map(jnp.float32, metrics)
    metrics = step_guard.choose(verdict.is_applied, metrics, jax.tree.map(jnp.zeros_like, metrics))
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

    parts = jax.tree.map(split, batch)
    first = jax.eval_shape(function, jax.tree.map(lambda x: x[0], parts))
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), first)

    def body(sums, rows):
        return jax.tree.map(jnp.add, sums, function(rows)), None

    return jax.lax.scan(body, zeros, parts)[0]


def real_token_share(batch):
    """Returns (number of real tokens, number of positions, padding included)."""
    real = batch["sequence_ids"] > 0
    return real.sum(dtype=jnp.float32), jnp.float32(real.size)


def evaluate(params, batch, *, objective, with_outputs: bool = False):
    """Returns ({metric: (sum, weight)}, {term: (sum, total)}, outputs) of one batch, without dropout; rows of weight 0
    do not count. The outputs are those of the objective, or {} without `with_outputs`.

    For several batches, first add up the sums and the totals of each term; the loss is then the sum of sum / total over
    the terms.
    """
    totals = objective.weights(batch)
    _, metrics = objective.loss(params, batch, totals, jnp.uint32(0), train=False)
    terms = {term: (metrics[f"{term}_loss"][0], total) for term, total in totals.items()}
    # The compiler computes the forward pass once for both.
    outputs = objective.outputs(params, batch) if with_outputs else {}
    return *jax.tree.map(jnp.float32, (metrics, terms)), outputs

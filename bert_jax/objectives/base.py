"""The one abstraction: a training objective as four pure functions; and the parts that objectives share.

B batch, P predictions per row, S packed sequences per row, D width, V padded vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax import config as configs
from bert_jax import prng
from bert_jax.errors import BadInput
from bert_jax.layers import counts
from bert_jax.layers.network import unused_positions
from bert_jax.optimizers.base import select_trained
from bert_jax.parallel.mesh import by_path
from bert_jax.registry import Interface, part_of
from bert_jax.tokenizers.special_tokens import Vocabulary


@dataclass(frozen=True, kw_only=True)
class Objective(Interface):
    """A model with its loss. The step and the loop use nothing but the first four functions.

    init: (rng, batch) -> params.
    weights: (batch) -> {term: total weight}, before any forward pass; None if it has no loss.
    loss: (params, batch, totals, key, *, train) -> (scalar, {name: (sum, weight)}).
    outputs: (params, batch) -> {name: array[B, ...]}, which predictions and scores read.
    terms: (outputs, batch) -> {name: (sum, weight)} of its module, for an objective that adds to them.
    guesses: (outputs, batch), of any number of rows -> what it predicts in them, see `guess`; None if it predicts no
        tokens.
    module: the Flax module that has the parameters.
    method: (params, name of a method of the module) -> the method.
    capture: (params, batch, is_chosen, key, *, train) -> the module's outputs, and {path/method/[number of the call]:
        what it returned} of the methods that is_chosen(module, name) selects. It sees only what runs: what costs
        something runs if module.is_mutable_collection("intermediates").
    reads: names of arrays, besides those of the batch contract; a task without one of them is refused.
    headline: the metric to watch, a loss in nats that has to fall below the unigram entropy.
    can: {what it can do: the parts of the parameters that this needs besides the model's body}: fill masks, continue or
        translate texts, label texts or words, answer questions, score sentences. All have features.

    The scalar of `loss` is the sum over terms of sum / totals[term]. The totals come from `weights` of the whole global
    batch, so the scalars and gradients of micro-batches add up to exactly those of the large batch. Each term is also
    a metric, `{term}_loss`.

    key, uint32[], decides all draws. That of a training step follows from its seed and number. In evaluations it is
    prng.EVALUATION, which `outputs` has, too, so that losses and outputs are of one forward pass.
    """

    init: Callable
    weights: Callable | None
    loss: Callable
    outputs: Callable
    terms: Callable | None = None
    guesses: Callable | None = None
    module: nn.Module | None = None
    method: Callable | None = None
    capture: Callable | None = None
    reads: tuple = ()
    headline: str = ""
    can: dict = field(default_factory=dict)


def from_module(
    module: nn.Module,
    weights: Callable | None = None,
    terms: Callable | None = None,
    decode: Callable | None = None,
    captured: Callable | None = None,
    **fields,
) -> Objective:
    """Returns the objective of a Flax module and of functions. Only its functions call Flax's `init` and `apply`.

    module: (batch, keys) -> outputs. While training, keys is uint32[B], one per row: the module passes them to its
    network, which derives a key for each dropout. Otherwise keys is None.
    weights: (batch) -> {term: total weight}. Without weights and terms, it has no loss.
    terms: (outputs, batch) -> {name: (sum, weight)}, with `{term}_loss` for every term of `weights`.
    decode: (call, batch) -> the objective's outputs, if these are not the module's. call: (name of a method of the
        module) -> the method as a function, such as `step` for decoding.py.
    captured: chooses what the loss captures, as `is_chosen` of Objective.capture. `terms` finds it as the output
        `captured`.
    fields: the others of the Objective.

    The batch of these functions also has keys of draws, while training or not: draw_keys, uint32[B], one per row, and
    step_key, uint32[], the same on all devices and in all micro-batches.
    """

    def init(rng, batch):
        batch = with_keys(jax.tree.map(jnp.asarray, batch))
        return module.init(rng, batch, None)["params"]

    def forward(params, batch, key, train: bool, **options):
        keys = row_keys(batch, key, "dropout") if train else None
        return module.apply({"params": params}, with_keys(batch, key), keys, **options)

    def loss(params, batch, totals, key, *, train):
        if captured:
            outputs, kept = capture(params, batch, captured, key, train=train)
            outputs = outputs | {"captured": kept}
        else:
            outputs = forward(params, batch, key, train)
        metrics = terms(outputs, with_keys(batch, key))
        scalar = sum(metrics[f"{term}_loss"][0] / total for term, total in totals.items())
        return scalar, metrics

    def outputs(params, batch):
        if decode:
            return decode(partial(method, params), with_keys(batch))
        return forward(params, batch, prng.EVALUATION, train=False)

    def method(params, name: str):
        return partial(module.apply, {"params": params}, method=name)

    def capture(params, batch, is_chosen: Callable, key=prng.EVALUATION, *, train=False):
        options = dict(capture_intermediates=is_chosen, mutable=["intermediates"])
        outputs, kept = forward(params, batch, key, train, **options)
        arrays = by_path(kept.get("intermediates", {}))
        if not arrays:
            hint = "flax.linen.scan needs variable_axes={'intermediates': 0}"
            raise BadInput(f"capture: no method is kept; {hint}")
        return outputs, arrays

    return Objective(
        init=init,
        weights=weights,
        loss=loss,
        outputs=outputs,
        terms=terms,
        module=module,
        method=method,
        capture=capture,
        **fields,
    )


def derive(key, purpose: str):
    """Returns the key of a purpose, uint32[]."""
    return prng.fold(jnp.uint32(key), jnp.uint32(prng.purpose(purpose)))


def row_keys(batch, key, purpose: str):
    """Returns the keys of a purpose for the rows of a batch, uint32[B]."""
    return prng.fold(derive(key, purpose), batch["rows"].astype(jnp.uint32))


def with_keys(batch, key=prng.EVALUATION):
    """Returns a batch with keys of draws, see `from_module`."""
    draw_keys = row_keys(batch, key, "draws")
    return batch | {"draw_keys": draw_keys, "step_key": derive(key, "step_draws")}


# --- What the files that a config names say -------------------------------------------------------


def make(config, vocabulary: Vocabulary, **fields) -> Objective:
    """Returns the objective that `config.objective.name` names. The file name is the registry.

    fields: of the network, that the program decides: `sequences`, `is_counted` (see attention_spec.Spec).
    """
    if config.objective.get("causal", False):
        fields["causal"] = True
    return part_of(config, "objective").make(config, vocabulary, **fields)


def warnings(config) -> list[str]:
    """Returns warnings about a config."""
    texts = unused_positions(config)
    for schedule in configs.schedules(config):
        steps = schedule.stop - schedule.first
        if schedule.warmup >= steps:
            key = f"{schedule.group}.warmup={schedule.warmup}"
            texts.append(f"{key}: of {steps} steps, so the learning rate does not reach its peak")
    return texts


def check_arrays(config, objective: Objective, arrays: dict) -> None:
    """Raises BadInput unless all the arrays that the objective reads are among those that the task makes."""
    missing = [name for name in objective.reads if name not in arrays]
    if missing:
        needs = f"config.objective.name={config.objective.name!r} needs {', '.join(missing)}"
        raise BadInput(f"config.task.name={config.task.name!r}: {needs}")


def step_flops(config, vocabulary: Vocabulary, params, rows: dict) -> float:
    """Returns the FLOPs of the matrix products of a training step, which `model_flops_utilization` counts.

    params, rows: arrays or shapes of the parameters, and of a whole global batch. Traces the model: about a second for
    BERT-large. Its attention is `is_counted`, since products inside of kernels are not seen, and blocks have products
    outside of a window. What the backward pass recomputes (`train.remat`) is not counted. Products whose result is
    masked are counted: attention between packed sequences, and to later tokens.
    """
    objective = make(config, vocabulary, is_counted=True)

    def loss(params, rows):
        # The gradients of layers that are not trained yet are computed, too.
        params = select_trained(config, 0, params, jax.lax.stop_gradient(params))
        return objective.loss(params, rows, objective.weights(rows), jnp.uint32(0), train=False)[0]

    program = jax.make_jaxpr(loss)(params, rows)
    return float(counts.products(program.jaxpr, [True] * len(jax.tree.leaves(params))))


# --- Losses ---------------------------------------------------------------------------------------


def cross_entropy(logits, targets, smoothing: float = 0.0, classes: int = 0):
    """Returns the cross-entropy of each target in nats, float32[...].

    logits: float32[..., C].
    targets: int32[...], classes.
    smoothing: the share of a target's probability that is spread over all classes (arXiv:1512.00567, section 7).
    classes: their number, without the padding of a vocabulary; 0: C.
    """
    normalizer = nn.logsumexp(logits, axis=-1)
    nats = normalizer - logit_of(logits, targets)
    if smoothing:
        count = classes or logits.shape[-1]
        # A mask of the logits' values would be written to memory: a tenth of a step of the base Transformer on a v5e.
        is_real = jnp.arange(logits.shape[-1]) < count
        total = jnp.where(is_real, logits, 0).sum(axis=-1)
        uniform = normalizer - total / count
        nats = (1 - smoothing) * nats + smoothing * uniform
    return nats


def hits(logits, targets):
    """Returns whether the logit of each target is the maximum, bool[...]; arguments as in `cross_entropy`.

    The cross-entropy computes this maximum anyway, while an argmax would read the logits once more.
    """
    return logit_of(logits, targets) >= logits.max(axis=-1)


def logit_of(logits, targets):
    """Returns float32[...]: the element of logits float32[..., C] at each target int32[...]."""
    return element_of(logits, targets, logits.shape[-1])


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def element_of(x, positions, size: int):
    """Returns the element of x[..., size] at each position int32[...].

    The backward pass compares positions, which XLA can fuse. The gradient of a gather would be a scatter into zeros.
    """
    return jnp.take_along_axis(x, positions[..., None], axis=-1)[..., 0]


def _element_forward(x, positions, size):
    return element_of(x, positions, size), positions


def _element_backward(size, positions, gradient):
    is_here = positions[..., None] == jnp.arange(size, dtype=positions.dtype)
    return jnp.where(is_here, gradient[..., None], 0), None


element_of.defvjp(_element_forward, _element_backward)


def has_next(ids):
    """Returns whether another token of its sequence follows each one, bool[B, L]. ids: sequence_ids int32[B, L]."""
    following = jnp.roll(ids, -1, axis=1).at[:, -1].set(0)
    return (ids == following) & (ids > 0)


def scored(term: str, logits, targets, weights) -> dict:
    """Returns the metrics of a term: its cross-entropy, and how often its target is the most probable."""
    return {
        f"{term}_loss": weighted_mean(cross_entropy(logits, targets), weights),
        f"{term}_accuracy": weighted_mean(hits(logits, targets), weights),
    }


def weighted_mean(values, weights):
    """Returns a mean as (weighted sum of values[...], total of weights float32[...])."""
    return (values * weights).sum(), weights.sum()


def guess(logits) -> dict:
    """Returns guesses int32[...], the most probable tokens, and guess_nats float32[...], their losses.

    An objective's `guesses` has both for the tokens of rows, [N, L], with

        targets      int32[N, L]   the tokens of the rows, none of them masked
        is_guessed   bool[N, L]    whether the guess is shown: it has a meaning, and the network does not see the target

    logits: float32[..., V].
    """
    guesses = logits.argmax(axis=-1).astype(jnp.int32)
    return {"guesses": guesses, "guess_nats": cross_entropy(logits, guesses)}

"""NaN in a batch's weights, a gradient, a parameter: never applied, the step named, and its batch shown.

Either in one step, which is skipped, or so often that the run stops. A parameter stays what it has become, so such a
run always stops.
"""

import contextlib
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax import train
from bert_jax.data import batch, batch_files, feed
from bert_jax.objectives import base
from faults.world import STEPS, Outcome, World, call, flat

KINDS = ("weights", "gradient", "parameter")
IN_A_ROW = 3


def inject(world: World, directory: Path, draw, number: int) -> Outcome:
    """The kinds take turns; of the first two, every other try is in one step."""
    run, kind = directory / "run", KINDS[number % len(KINDS)]
    step = int(draw.integers(1, STEPS - IN_A_ROW))
    once = kind != "parameter" and number // len(KINDS) % 2 == 0
    steps = [step] if once else range(step, step + IN_A_ROW)
    stop = {"guard.stop_after": IN_A_ROW}
    with observed() as seen, PUT[kind](world, steps, draw):
        ended = call(*world.pretrain(run, **stop))
    story = f"{kind}, {'step' if once else 'steps from'} {step}"
    wrong = applied(seen, steps) or unnamed(world, run, ended, step, once)
    if not wrong and not once:
        wrong = world.finish(run, **stop)
    kind = f"{kind} {'once' if once else 'in a row'}"
    return Outcome(not wrong, kind, f"{story}; {wrong or 'never applied, named'}")


def unnamed(world: World, run: Path, ended, step: int, once: bool) -> str:
    """What is wrong with what a run says of its step, or an empty text."""
    if once:
        named = re.search(rf"^step {step}: .*; skipped$", ended.said, re.M)
        return "" if named and ended.code == 0 else f"code {ended.code}: {ended.said}"
    if ended.code != 1 or not re.search(rf"bert-jax inspect .*--step {step}$", ended.said, re.M):
        return f"code {ended.code}: {ended.said}"
    shown = call("inspect", "--config", run / "config.json", "--step", step, "--json", "-")
    digest = batch.digest(read_batch(world, step))
    return "" if digest in shown.said else f"inspect shows another batch: {shown}"


def read_batch(world: World, step: int) -> dict:
    batches = batch_files.open_saved(world.directory / "batches")
    return next(batch_files.train(batches, "main", step, step + 1))


# --- What a step does to the state ----------------------------------------------------------------


@contextlib.contextmanager
def observed():
    """{step: (state before, state after)} of each step that is done, as a run in this process does them."""
    seen, build = {}, train.build

    def building(*arguments):
        trainer = build(*arguments)
        programs = {name: watch(program) for name, program in trainer.train.items()}
        return trainer._replace(train=programs)

    def watch(program):
        def step(state, rows):
            before = jax.device_get(state)
            result = program(state, rows)
            seen[int(before.step)] = before, jax.device_get(result[0])
            return result

        return step

    train.build = building
    try:
        yield seen
    finally:
        train.build = build


def applied(seen: dict, steps) -> str:
    """Which of these steps has changed a parameter or the optimizer's state, or an empty text."""
    for step in steps:
        if step not in seen:
            return f"step {step} was not done"
        before, after = (flat((state.params, state.opt_state.inner)) for state in seen[step])
        for name, array in before.items():
            if array.tobytes() != after[name].tobytes():
                return f"step {step} has changed {name}"
    return ""


# --- Where NaN is put: (world, steps, generator) -> a context -------------------------------------


@contextlib.contextmanager
def in_weights(world, steps, draw):
    """Of one masked position or of a pair, in the batch that a feed gives."""
    whole = feed.SavedFeed.train
    name = str(draw.choice(["masked_weights", "pair_weights"]))
    row = int(draw.integers(world.settings["phases.main.batch"]))

    def broken(self, phase, begin, last, positions=None):
        for step, arrays in enumerate(whole(self, phase, begin, last, positions), begin):
            if step in steps:
                arrays[name][row, 0] = np.nan
            yield arrays

    feed.SavedFeed.train = broken
    try:
        yield
    finally:
        feed.SavedFeed.train = whole


@contextlib.contextmanager
def in_gradient(world, steps, draw):
    """Of one number of one parameter: the loss stays what it is. Known by the rows of the batch."""
    make = base.make
    rows = jnp.asarray(np.stack([read_batch(world, step)["tokens"][0] for step in steps]))

    def making(*arguments):
        objective = make(*arguments)
        shapes = jax.eval_shape(objective.init, jax.random.key(0), batch.synthetic(1, 8, 1, 9))
        leaf, place = one_number(jax.tree.leaves(shapes), draw)

        def loss(params, arrays, *others, **keys):
            same = (arrays["tokens"][:, None] == rows[None]).all(-1).any()
            leaves, tree = jax.tree.flatten(params)
            leaves[leaf] = poisoned(leaves[leaf], same, place)
            return objective.loss(jax.tree.unflatten(tree, leaves), arrays, *others, **keys)

        return objective._replace(loss=loss)

    base.make = making
    try:
        yield
    finally:
        base.make = make


def poisoned(x, is_hit, place):
    """x, whose gradient has NaN at a place where is_hit."""

    @jax.custom_vjp
    def same(x, is_hit):
        return x

    def forward(x, is_hit):
        return x, is_hit

    def backward(is_hit, gradient):
        return gradient.at[place].add(jnp.where(is_hit, jnp.nan, 0.0)), None

    same.defvjp(forward, backward)
    return same(x, is_hit)


@contextlib.contextmanager
def in_parameter(world, steps, draw):
    """One number of one parameter, before the first of the steps; as a device whose memory fails."""
    build = train.build

    def building(*arguments):
        trainer = build(*arguments)
        programs = {name: breaking(program) for name, program in trainer.train.items()}
        return trainer._replace(train=programs)

    def breaking(program):
        def step(state, rows):
            if int(state.step) == min(steps):
                state = state._replace(params=with_nan(state.params))
            return program(state, rows)

        return step

    def with_nan(params):
        leaves, tree = jax.tree.flatten(params)
        number, place = one_number(leaves, draw)
        array = np.array(leaves[number])
        array[place] = np.nan
        leaves[number] = jax.device_put(array, leaves[number].sharding)
        return jax.tree.unflatten(tree, leaves)

    train.build = building
    try:
        yield
    finally:
        train.build = build


def one_number(leaves, draw) -> tuple[int, tuple]:
    """(number of a leaf, place in it)."""
    number = int(draw.integers(len(leaves)))
    return number, tuple(int(draw.integers(size)) for size in leaves[number].shape)


PUT = {"weights": in_weights, "gradient": in_gradient, "parameter": in_parameter}

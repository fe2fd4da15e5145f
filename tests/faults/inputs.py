"""Numbers of a batch that are not finite: never applied, and the step is named."""

import contextlib
import re
from pathlib import Path

import numpy as np

from bert_jax.data import feed
from faults.world import STEPS, Outcome, World, call, read_state

IN_A_ROW = 3  # steps with a number that is not finite, after which a run stops


def put_nan(world: World, directory: Path, draw, number: int) -> Outcome:
    """In turn in one step, which is skipped, and in so many that the run stops, to be started again."""
    run, step = directory / "run", int(draw.integers(1, STEPS - IN_A_ROW))
    is_once, stop = number % 2 == 0, {"guard.stop_after": IN_A_ROW}
    with not_finite(range(step, step + (1 if is_once else IN_A_ROW)), draw):
        ended = call(*world.pretrain(run, **stop))
    if is_once:
        named = re.search(rf"^step {step}: .*; skipped$", ended.said, re.M) and ended.code == 0
        is_right = named and all(np.isfinite(x).all() for x in read_state(run, STEPS).values())
        wrong = "" if is_right else f"code {ended.code}: {ended.said}"
    else:
        named = re.search(rf"bert-jax inspect .*--step {step}$", ended.said, re.M)
        is_right = named and ended.code == 1
        wrong = world.finish(run, **stop) if is_right else f"code {ended.code}: {ended.said}"
    kind = "once" if is_once else "in a row"
    return Outcome(not wrong, kind, f"{kind}, from step {step}; {wrong or 'never applied, named'}")


@contextlib.contextmanager
def not_finite(steps, draw):
    """NaN as the weight of one masked position or pair, in the batches of these steps that a feed gives."""
    train, name = feed.SavedFeed.train, str(draw.choice(["masked_weights", "pair_weights"]))

    def broken(self, phase, begin, last, positions=None):
        for step, arrays in enumerate(train(self, phase, begin, last, positions), begin):
            if step in steps:
                arrays[name][0, 0] = np.nan
            yield arrays

    feed.SavedFeed.train = broken
    try:
        yield
    finally:
        feed.SavedFeed.train = train

"""Recommends runs for a corpus and for budgets of time on this machine, as changes of the config that prepared it."""

import itertools
import math
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

from bert_jax import config as configs
from bert_jax.data.preparation.report import SHORT_DOCUMENTS

MINUTES = (10, 60, 480)  # the budgets
SHARE = 0.9  # of a budget that is spent on steps, not on compiling, evaluations and checkpoints
SEEN = 20  # tokens seen for each parameter, at least (arXiv:2203.15556)
TOKENS_PER_PARAMETER = 10  # distinct ones, at least
PASSES = 40  # at most
STEPS = 1_000_000
WARMUP = 0.1  # share of the steps, unless the recipe has a larger one
MAX_WARMUP = 10_000  # steps
# Shipped configs with changes, smallest model first: a run takes size, optimizer, schedule and shapes of rows from one.
# Short rows and high rates leave the frequencies of tokens early. Sizes below base have the rate of ELECTRA-Small
# (arXiv:2003.10555).
RATE = "optimizer.learning_rate=5e-4"
RECIPES = {
    "bert": (
        ("demo",),
        ("first_real",),
        ("my_corpus",),
        ("bert_small", RATE),
        ("bert_medium", RATE),
        ("bert_base",),
        ("bert_large",),
    ),
    "gpt": (
        ("gpt_demo",),
        ("gpt_demo", "model.layers=4", "model.width=256", "optimizer.learning_rate=2e-3"),
        (
            "gpt2_small",
            "model.layers=8",
            "model.width=512",
            "model.heads=8",
            "phases.main.batch=128",
        ),
        ("gpt2_small",),
        ("gpt2_medium",),
    ),
}
SIZE = "layers width heads dropout attention_dropout initializer".split()
MEASURED = 2000  # steps, about, of the shortest runs of REACHED
# Nats under the loss of frequencies, of held-out tokens at [MASK].
REACHED = {
    "demo": "2.2 to 3.2 nats under frequencies, as on captions (2,000 steps), Wikipedia (8,000), READMEs (4,500)",
    "first_real": "3 nats under frequencies, as on Wikipedia (9,000 steps)",
}


def recommend(config, report: dict, time_step: Callable, is_run: bool = False) -> list[dict]:
    """Returns a run for each budget, [{minutes, changes, layers, width, steps, passes, takes, reached}].

    report: of the store.
    time_step: config -> seconds of a step on this machine; None: unknown.
    is_run: whether the config is that of a run with parameters, which keeps its model and its steps.

    `changes` are the keys of the config with another value in this run: {key: value}. `takes` are the minutes that the
    run takes, less than `minutes` if more passes would seldom help. Both are None if steps have no time: the text alone
    decides. Budgets with the same changes have one run, that of the smallest.

    Size: the largest one that sees 20 tokens for each parameter of its blocks within the budget, and whose text has
    ten, or the first one; BERT-large, with 302M and 3.3 billion words (arXiv:1810.04805), has the fewest of the
    published sizes: eleven. Base models trained on 4 GB of text were as good as those trained on over 130 GB
    (CamemBERT, arXiv:1911.03894).

    The first recipe, demo's, leaves the frequencies of tokens soonest. On Wikipedia it was 1.2 nats under them after
    2,000 of 8,000 steps, and 2.4 at the end. That of first_real, whose steps take four times as long, was 0.2 under
    them after 2,500.

    Steps: those that the budget has time for, at most 40 passes over the text, the number of arXiv:1810.04805, and a
    million steps, as there. T5 lost little with 64 passes, more with 256 and much with 1,024 (arXiv:1910.10683, table
    9).

    Models without recipes, and those that start from other parameters, keep the run of their config: one without
    minutes and changes.
    """
    tokens = report["train"]["tokens"]
    recipes = [configs.load(name, changes) for name, *changes in RECIPES.get(config.model.name, ())]
    if is_run or not recipes or config.init_from or config.continue_from:
        steps = configs.total_steps(config)
        passes = steps * seen_tokens(config, report) / tokens
        return [{"minutes": None, "changes": {}, "steps": steps, "passes": passes}]
    fitting = [each for each in recipes if TOKENS_PER_PARAMETER * parameters(each) <= tokens]
    fitting = fitting or recipes[:1]
    chosen = {}
    for recipe in fitting:
        after = apply(config, report, recipe, 1000)
        seconds = time_step(after)
        if not seconds:
            break
        for minutes in MINUTES:
            steps = SHARE * 60 * minutes / seconds
            seen = steps * seen_tokens(after, report)
            if recipe is fitting[0] or seen >= SEEN * parameters(recipe):
                chosen[minutes] = recipe, steps, seconds
        if chosen[MINUTES[-1]][0] is not recipe:
            break
    chosen = chosen or {None: (fitting[-1], STEPS, None)}
    runs = [make_run(config, report, minutes, *chosen[minutes]) for minutes in chosen]
    return [next(same) for _, same in itertools.groupby(runs, lambda run: run["changes"])]


def parameters(config) -> int:
    """Returns the number of weights in the blocks: per layer 4 width**2 in attention, 8 width**2 in feed-forward."""
    return 12 * config.model.layers * config.model.width**2


def seen_tokens(config, report: dict) -> float:
    """Returns the tokens of a step, the mean over the phases; a row of pairs has no more than the mean document."""
    most = math.inf
    if config.task.name == "sentence_pairs":
        most = report["train"]["tokens"] / report["train"]["documents"]
    phases = configs.phases(config)
    tokens = [each.keys.steps * each.batch * min(most, each.length) for each in phases]
    return sum(tokens) / phases[-1].stop


def make_run(config, report: dict, minutes, recipe, steps: float, seconds) -> dict:
    """Returns a run of a recipe, see `recommend`.

    steps: at most; the text may allow fewer.
    seconds: of a step, or None.
    """
    tokens = report["train"]["tokens"]
    seen = seen_tokens(apply(config, report, recipe, 1000), report)
    steps = min(STEPS, steps, PASSES * tokens / seen)
    steps = max(10, steps)
    unit = 10 ** int(math.log10(steps) - 1)
    steps = int(steps // unit * unit)
    after = apply(config, report, recipe, steps)
    now = configs.flatten(config)
    is_measured = minutes == MINUTES[0] and steps >= MEASURED
    return {
        "minutes": minutes,
        "changes": {key: new for key, new in configs.flatten(after).items() if new != now.get(key)},
        "layers": after.model.layers,
        "width": after.model.width,
        "steps": steps,
        "passes": steps * seen / tokens,
        "takes": seconds and steps * seconds / 60 / SHARE,
        "reached": REACHED.get(Path(recipe.store).name, "") if is_measured else "",
    }


def apply(config, report: dict, recipe, steps: int):
    """Returns the config with a recipe. Its phases keep their shares of the steps, and get the shape of the recipe's
    phase of their number, or of the last one. Pairs are left out if it has none, or if documents are too short."""
    after = config.copy_and_resolve_references()
    after.model.update({key: recipe.model[key] for key in SIZE})
    after.model.feed_forward = config.model.feed_forward * recipe.model.width // config.model.width
    after.optimizer = recipe.optimizer.copy_and_resolve_references()
    after.train.update(micro_batches=1, tokens_per_device=recipe.train.tokens_per_device)
    shapes = configs.phases(recipe)
    first = 0
    for phase in configs.phases(config):
        shape = shapes[min(phase.number, len(shapes) - 1)]
        stop = max(first + 1, round(steps * phase.stop / configs.total_steps(config)))
        keys = after.phases[phase.name]
        keys.update(steps=stop - first, batch=shape.batch, length=shape.length)
        keys.update(schedule="", learning_rate=0.0, warmup=0, decay=0, end=0.0)
        first = stop
        share = shape.length / phase.length
        for key, factor in (("max_predictions", share), ("max_packed", min(1, share))):
            if key in keys:
                keys[key] = math.ceil(keys[key] * factor)
    after.model.max_length = max(phase.length for phase in configs.phases(after))
    is_short = report["single_sentence_share"] > SHORT_DOCUMENTS
    if "pair_task" in after.task and (is_short or "pair_task" not in recipe.task):
        after.task.pair_task = "none"
    warmup = max(WARMUP, recipe.schedule.warmup / configs.total_steps(recipe))
    warmup = min(MAX_WARMUP, round(warmup * steps))
    after.schedule.update(name=recipe.schedule.name, warmup=warmup, decay=0, end=0.0)
    after.log.every = int(float(f"{min(100, max(1, steps / 50)):.1g}"))
    after.evaluate.every = after.log.every * math.ceil(min(5000, steps / 5) / after.log.every)
    after.checkpoint.every = after.evaluate.every
    return after


# --- Text -----------------------------------------------------------------------------------------


def arguments(run: dict, name: str, overrides: list[str]) -> list[str]:
    """Returns the arguments of `pretrain` for a run, without --workdir.

    name, overrides: of the config that prepared the store.
    """
    unchanged = [text for text in overrides if text.partition("=")[0] not in run["changes"]]
    changed = [f"{key}={value}" for key, value in run["changes"].items()]
    return ["--config", name, *(f"--config.{text}" for text in [*unchanged, *changed])]


def describe(report: dict, workdir: str) -> Iterator[str]:
    """Yields the recommended runs of a report as text, each with its command.

    workdir: that of a run that exists, whose config prepared the store.
    """
    tokens = f"{report['train']['tokens']:,} training tokens"
    for run in report["recommended"]:
        minutes = run["minutes"]
        head = f"the run of {workdir or 'this config'}"
        if "layers" in run:
            head = f"recommended: {run['layers']} layers of width {run['width']}"
        if minutes:
            takes = f"{run['takes']:.0f}"
            if run["takes"] < 1:
                takes = f"{60 * run['takes']:.0f} seconds"
            head = f"{takes} of {minutes} minutes on this machine, {head}"
        yield f"{head}, {run['steps']:,} steps, {run['passes']:.3g} passes over {tokens}"
        if run.get("reached"):
            yield f"  expect {run['reached']}"
        _, name, *keys = run["arguments"]
        where = shlex.quote(workdir or free_workdir(name, minutes))
        command = f"bert-jax pretrain --config {shlex.quote(name)} --workdir {where}"
        yield from ("", "    " + " \\\n    ".join([command, *map(shlex.quote, keys)]), "")


def free_workdir(name: str, minutes: int | None) -> str:
    """Returns runs/NAME_MINUTESmin, with a number if that exists, for a config whose name or path is given."""
    workdir = f"runs/{Path(name).stem}"
    if minutes:
        workdir += f"_{minutes}min"
    numbers = (f"{workdir}_{number}" for number in itertools.count(2))
    return next(free for free in itertools.chain([workdir], numbers) if not Path(free).exists())

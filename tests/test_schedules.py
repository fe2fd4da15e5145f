"""Schedules by phase: rates of published runs by their formulas, scaled down, and what the phases' keys decide."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bert_jax.configs import base
from kits.small import small_config

from bert_jax import config as configs
from bert_jax import optimizer
from bert_jax.objectives import base as objectives
from bert_jax.runs import continuation

# Batches of a phase of 1,024 tokens, and the steps of each size: the batch grows.
GROWING = {f"grow{batch}": (batch, 1024, 40) for batch in (8, 16, 32)}


def load(shapes: dict, **changes):
    """Returns a config with phases {name: (batch, length, steps)} and values for other keys."""
    config = base.get_config()
    with config.unlocked():
        config.phase_order = tuple(shapes)
        config.phases = base.ConfigDict(
            {
                name: base.phase(steps, length, batch)
                for name, (batch, length, steps) in shapes.items()
            }
        )
    for key, value in changes.items():
        group, _, name = key.rpartition("__")
        configs.assign(config, f"{group.replace('__', '.')}.{name}", value)
    configs.base_config.check_values(config)
    return config


def tokens_before(config) -> np.ndarray:
    """Returns float64[steps + 1]: the tokens before each step of a run."""
    tokens = [np.full(p.stop - p.first, p.batch * p.length) for p in configs.phases(config)]
    return np.concatenate([[0.0], np.cumsum(np.concatenate(tokens))])


def falling(x, begin, end, final):
    """1 - sqrt of the progress from begin to end, to a final share."""
    progress = np.clip((x - begin) / (end - begin), 0, 1)
    return 1 + (final - 1) * np.sqrt(progress)


def finnish(x, at):
    """3e-4 to 85 %, 5e-5 to 97 %, then 1 - sqrt to 0.02 of it."""
    rising = np.minimum(1, x / at["warm"])
    later = 5e-5 * falling(x, at["last"], at["end"], 0.02)
    return np.where(x < at["low"], 3e-4 * rising, later)


PUBLISHED = {
    "finnish": (
        GROWING | {"high": (32, 1024, 1000), "low": (4, 8192, 150), "last": (4, 8192, 37)},
        dict(
            schedule__name="constant",
            schedule__warmup=60,
            optimizer__learning_rate=3e-4,
            phases__low__schedule="sqrt",
            phases__low__learning_rate=5e-5,
            phases__low__decay=37,
            phases__low__end=0.02,
        ),
        finnish,
    ),
    "hebrew 1": (
        GROWING | {"full": (64, 1024, 500)},
        dict(
            schedule__name="constant",
            schedule__warmup=100,
            optimizer__learning_rate=8e-4,
        ),
        lambda x, at: 8e-4 * np.minimum(1, x / at["warm"]),
    ),
    "hebrew 2": (
        {"main": (64, 1024, 1000)},
        dict(
            schedule__name="linear",
            schedule__warmup=20,
            schedule__decay=100,
            schedule__end=0.02,
            optimizer__learning_rate=8e-4,
        ),
        lambda x, at: (
            8e-4
            * np.minimum(1, x / at["warm"])
            * (1 - 0.98 * np.clip((x / at["end"] - 0.9) / 0.1, 0, 1))
        ),
    ),
    "hebrew 3": (
        {"main": (576, 8192, 100)},
        dict(schedule__name="constant", schedule__warmup=0, optimizer__learning_rate=3e-4),
        lambda x, at: np.full_like(x, 3e-4),
    ),
    "hebrew 4": (
        {"main": (576, 8192, 100)},
        dict(
            schedule__name="sqrt",
            schedule__warmup=0,
            schedule__end=0.001,
            optimizer__learning_rate=3e-4,
        ),
        lambda x, at: 3e-4 * falling(x, 0, at["end"], 0.001),
    ),
    "indic": (
        GROWING | {"full": (64, 1024, 300), "long": (8, 8192, 200)},
        dict(schedule__name="constant", schedule__warmup=0, optimizer__learning_rate=4.88e-4),
        lambda x, at: np.full_like(x, 4.88e-4),
    ),
    "bioclinical": (
        {"all": (72, 8192, 300), "clinical": (72, 8192, 200)},
        dict(
            schedule__name="constant",
            schedule__warmup=0,
            optimizer__learning_rate=3e-4,
            phases__clinical__schedule="sqrt",
            phases__clinical__end=0.001,
        ),
        lambda x, at: 3e-4 * falling(x, at["clinical"], at["end"], 0.001),
    ),
    "mmbert": (
        GROWING | {"many": (64, 1024, 900), "long": (8, 8192, 300), "all": (16, 8192, 50)},
        dict(
            schedule__name="constant",
            schedule__warmup=70,
            optimizer__learning_rate=8e-4,
            phases__all__schedule="sqrt",
            phases__all__end=0.02,
        ),
        lambda x, at: 8e-4 * np.minimum(1, x / at["warm"]) * falling(x, at["all"], at["end"], 0.02),
    ),
    "ettin": (
        {"first": (64, 1024, 900), "long": (8, 8192, 150), "decay": (8, 8192, 30)},
        dict(
            schedule__name="constant",
            schedule__warmup=9,
            optimizer__learning_rate=8e-4,
            phases__long__schedule="sqrt",
            phases__long__end=0.5,
            phases__decay__schedule="sqrt",
            phases__decay__learning_rate=4e-4,
            phases__decay__end=0.04,
        ),
        lambda x, at: np.where(
            x < at["decay"],
            8e-4 * np.minimum(1, x / at["warm"]) * falling(x, at["long"], at["decay"], 0.5),
            4e-4 * falling(x, at["decay"], at["end"], 0.04),
        ),
    ),
    "llm-jp": (
        {"main": (3328, 1024, 5000)},
        dict(
            schedule__name="linear",
            schedule__warmup=240,
            schedule__decay=4760,
            optimizer__learning_rate=5e-4,
        ),
        lambda x, at: 5e-4 * np.minimum(x / at["warm"], (at["end"] - x) / (at["end"] - at["warm"])),
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_rates_are_those_of_published_runs(name):
    """By the formulas of their papers and code, as functions of the tokens before a step, in float64."""
    shapes, changes, formula = PUBLISHED[name]
    config = load(shapes, **changes)
    tokens = tokens_before(config)
    phases = configs.phases(config)
    at = {phase.name: tokens[phase.first] for phase in phases}
    at |= {"warm": tokens[config.schedule.warmup] or 1.0, "end": tokens[-1]}
    expected = formula(tokens[:-1], at)
    for numpy in (jnp, np):
        rate = optimizer.rate_of(configs.schedules(config), numpy)
        actual = rate(np.arange(phases[-1].stop))
        np.testing.assert_allclose(actual, expected, rtol=1e-6)


def test_rates_of_large_batches_are_those_of_their_code():
    """PolyWarmUpScheduler of NVIDIA/DeepLearningExamples, PyTorch/LanguageModeling/BERT/schedulers.py, in float64."""
    config = configs.load("bert_large_lamb")
    expected = []
    for peak, warmup, steps in ((6e-3, 0.2843, 7038), (4e-3, 0.128, 1563)):
        warmup = round(warmup * steps) / steps
        progress = np.arange(steps) / steps
        rates = np.where(progress < warmup, progress / warmup, (1 - progress) ** 0.5)
        expected.append(peak * rates)
    for numpy in (jnp, np):
        rate = optimizer.rate_of(configs.schedules(config), numpy)
        actual = rate(np.arange(configs.total_steps(config)))
        np.testing.assert_allclose(actual, np.concatenate(expected), rtol=1e-6)


def test_a_decay_may_span_phases_and_a_warm_up_begins_again():
    """Of 100 tokens in each step of `a` and 200 in those of `b` and `c`; the decay has the last 15 steps."""
    shapes = {"a": (10, 10, 20), "b": (20, 10, 10), "c": (20, 10, 10)}
    config = load(shapes, schedule__name="constant", schedule__warmup=0)
    keys = dict(schedule="sqrt", learning_rate=2e-4, warmup=4, decay=15, end=0.1)
    config.phases.b = base.phase(10, 10, 20, **keys)
    rate = optimizer.rate_of(configs.schedules(config), np)
    rates = {step: float(rate(step)) for step in (0, 19, 20, 22, 25, 40)}
    assert rates == pytest.approx({0: 1e-4, 19: 1e-4, 20: 0, 22: 1e-4, 25: 2e-4, 40: 2e-5})
    assert float(rate(31)) == pytest.approx(2e-4 * (1 - 0.9 * 0.4**0.5))


def test_stable_adamw_decays_relative_to_the_peak_in_force():
    """Without gradients, each step takes the weight decay of the parameters, whatever the peak."""
    config = load(
        {"a": (1, 1, 3), "b": (1, 1, 3)},
        schedule__name="constant",
        schedule__warmup=0,
        optimizer__name="stable_adamw",
        optimizer__weight_decay=1e-3,
        phases__b__schedule="constant",
        phases__b__learning_rate=1e-5,
    )
    schedules = configs.schedules(config)
    peak = lambda step: optimizer.peak_of(schedules, step)  # noqa: E731
    chain = optimizer.make(config, optimizer.rate_of(schedules), peak)
    params = {"dense": {"kernel": jnp.ones((2, 2))}}
    zeros = jax.tree.map(jnp.zeros_like, params)
    state = chain.init(params)
    for step in range(6):
        updates, state = chain.update(
            zeros, state, params, step=jnp.int32(step), gradient_norm=jnp.float32(0)
        )
        np.testing.assert_allclose(updates["dense"]["kernel"], -1e-3, rtol=1e-5)


TWO = """
    phase_order=a,b schedule.name=constant schedule.warmup=2 phases.b.schedule=sqrt
    phases.b.learning_rate=1e-4 phases.b.decay=6 phases.b.end=0.1
"""


def two_phases(*changes: str):
    """Returns a config with 20 steps at one rate, and 10 with a schedule of their own, whose last 6 are a decay."""
    config = small_config()
    with config.unlocked():
        config.phases = base.ConfigDict({name: config.phases.main.to_dict() for name in "ab"})
        config.phases.b.steps = 10
    configs.apply(config, [*TWO.split(), *changes])
    configs.check(config)
    return config


@pytest.mark.parametrize(
    ("change", "first_refused"),
    [
        ("schedule.warmup=3", 1),
        ("schedule.name=sqrt schedule.decay=5", 16),
        ("schedule.name=sqrt", 1),
        ("phases.b.learning_rate=2e-4", 21),
        ("phases.b.schedule=linear", 21),
        ("phases.b.end=0.2", 25),  # the decay begins after step 24
        ("phases.b.decay=0", 25),
        ("schedule.name=linear", 1),
        ("phases.b.decay=8", 23),
        ("phases.b.steps=20", 25),
    ],
)
def test_a_schedule_may_change_before_it_begins_and_a_decay_too(change, first_refused):
    old, new = two_phases(), two_phases(*change.split())
    for before, after in pairwise(range(1, 31)):
        refused = [bool(continuation.refusals(old, new, step)) for step in (before, after)]
        assert refused == [before >= first_refused, after >= first_refused]


def test_schedules_of_phases_follow_other_steps():
    old = two_phases("phases.b.warmup=2")
    new = two_phases("phases.b.warmup=2", "phases.a.steps=10", "phases.b.steps=5")
    base.follow(new, old, {"phases.a.steps", "phases.b.steps"})
    assert (new.phases.b.warmup, new.phases.b.decay) == (1, 3)


def test_a_warm_up_that_is_too_long_is_warned_of():
    assert not objectives.warnings(two_phases("phases.b.warmup=3"))
    (warning,) = objectives.warnings(two_phases("phases.b.warmup=10"))
    assert warning.startswith("phases.b.warmup=10: of 10 steps")

"""Which keys of a run may change when it is resumed or continued."""

from ml_collections import ConfigDict

from bert_jax import config as configs
from bert_jax.config_checks import value_of


def take_schedule(config: ConfigDict, old: ConfigDict, overrides: list[str]) -> None:
    """Sets the warm-up and the peak rate to those of a run that continues, unless they are overridden: with other steps
    than the run began with, others would follow, see `configs.adapt`. Then the warm-up differs, or the steps are
    overridden. Prints what changes.

    old: the saved config of the run.
    """
    fixed = configs.overridden(overrides)
    is_same = config.schedule.warmup == old.schedule.warmup
    if is_same and not any(key.endswith(".steps") for key in fixed):
        return
    for key in ("schedule.warmup", "optimizer.learning_rate"):
        value = value_of(old, key)
        if key not in fixed and value != value_of(config, key):
            configs.assign(config, key, value)
            print(f"config.{key}={value}: as the run began")


def refusals(old: ConfigDict, new: ConfigDict, step: int) -> list[str]:
    """Returns one line per key in which `new` may not differ from `old`, the saved config of a run at `step`.

    A run may change the keys of CHANGEABLE and BY_CONTENT, phases that have not started, and a decay that has not
    begun. An import (step 0) may change all but its model, which is that of the first phase, and starts from no other
    run.
    """
    begin = min(configs.total_steps(config) - config.schedule.decay for config in (old, new))
    has_decay_changed = step > begin and decay_from(begin, old) != decay_from(begin, new)
    free = configs.CHANGEABLE
    if not has_decay_changed:
        free += ("schedule.decay",)
    if step:
        free += configs.BY_CONTENT
    else:
        old = configs.at_step(old, 0)
        new = configs.at_step(new, 0)
    refused = []
    for key, (was, now) in configs.differences(old, new).items():
        if configs.may_change(key, free):
            continue
        if step == 0 and not configs.is_of_model(key) and key not in configs.STARTS:
            continue
        if not has_decay_changed and is_of_future(key, old, new, step):
            continue
        facts = []
        name = key.partition(".")[2].removesuffix(".steps")
        if done := configs.steps_by_phase(old, step).get(name):
            facts.append(f"{done} are done")
        if has_decay_changed:
            facts.append("the decay has begun")
        before = f"{was!r} in the run"
        if facts:
            before += f" ({', '.join(facts)})"
        refused.append(f"config.{key}: {before}, {now!r} now")
    return refused


def is_of_future(key: str, old: ConfigDict, new: ConfigDict, step: int) -> bool:
    """Returns whether a key is of phases, and its change has no effect on the first `step` steps."""
    before = configs.phases(old)
    count = sum(phase.first < step for phase in before)
    started = old.phase_order[:count]
    if key == "phase_order":
        return started == new.phase_order[:count]
    group, _, rest = key.partition(".")
    name, _, field = rest.partition(".")
    if group != "phases":
        return False
    # `steps` of the current phase, or of the last one after it has ended, may change, but not below the steps done.
    unfinished = {phase.name for phase in before if phase.stop > step or phase == before[-1]}
    unfinished &= {phase.name for phase in configs.phases(new) if phase.stop >= step}
    return name not in started or (field == "steps" and name in unfinished)


def decay_from(step: int, config: ConfigDict) -> list:
    """Returns what decides the learning rate after a step of a decay: it follows the tokens of the phases."""
    later = [phase._replace(keys=None) for phase in configs.phases(config) if phase.stop > step]
    return [config.schedule.decay, *later]

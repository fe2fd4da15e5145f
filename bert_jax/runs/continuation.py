"""Which keys of a run may change when it is resumed or continued."""

from ml_collections import ConfigDict

from bert_jax import config as configs
from bert_jax.checks import value_of
from bert_jax.storage.checksums import json_digest

# Keys and groups that a resumed run may change.
CHANGEABLE = (
    *configs.DECODING,
    "mesh",
    "train",
    "guard",
    "log",
    "profile",
    "evaluate",
    "checkpoint",
    "timeouts",
    "store",  # its content is compared by its fingerprint
    "batches",  # likewise
    "task.epochs",  # it decides steps
    "task.warmup",  # it decides a warm-up
    "verify_store",
    "compilation_cache",
    "distributed",
    "model.attention",
    "corpus.workers",
)
# Keys that name content, which is compared where it is opened; another name of the same content is no change. The run
# that one continues is not opened again.
BY_CONTENT = (
    "corpus.source",
    "corpus.heldout_source",
    "tokenizer.path",
    "task.data",
    "task.train",
    "task.dev",
    *configs.STARTS,
)


def may_change(key: str, names: tuple = CHANGEABLE) -> bool:
    """Returns whether a resumed run may change a key, because it or its group is among the names."""
    return key in names or key.partition(".")[0] in names


def is_of_model(key: str) -> bool:
    """Returns whether a key determines the shapes or the meaning of a model's parameters. Keys `evaluation_*` decide
    evaluations alone."""
    group, _, name = key.partition(".")
    free = ("dropout", "attention_dropout", "hidden_dropout", "initializer")
    if key in configs.DECODING:
        return False
    if key == "task.pair_task":  # decides whether there is a head for pairs
        return True
    is_free = name in free or name.startswith("evaluation_")
    return group in ("model", "objective") and not is_free


def digest(config: ConfigDict | dict) -> str:
    """Returns the SHA-256, in hex, of the keys that a run's parameters depend on and that never change.

    Leaves out what a resumed run may change, phases and schedules (future ones may change), and the keys of BY_CONTENT.

    config: of a finished run, as its config.json was saved, so that keys which were added since change nothing.
    """
    schedule = "schedule.name", "schedule.decay", "schedule.end"
    free = (*CHANGEABLE, *BY_CONTENT, "phases", "phase_order", *schedule)
    return json_digest(
        {key: value for key, value in configs.flatten(config).items() if not may_change(key, free)}
    )


def take_schedule(config: ConfigDict, old: ConfigDict, overrides: list[str]) -> None:
    """Keeps the warm-up and the peak rate of a run that continues, unless they are overridden. Another number of steps
    would change them, see `configs.adapt`. Prints what changes.

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
    has_decay_changed = decay_begun(old, step) != decay_begun(new, step)
    free = CHANGEABLE
    if not has_decay_changed:
        schedule = schedule_at(old, step)
        group = schedule.group
        if schedule.decay or is_stable(schedule):  # others fall without a decay
            free += (f"{group}.decay", f"{group}.end")
        if is_stable(schedule) and is_stable(schedule_at(new, step)):
            free += (f"{group}.name", f"{group}.schedule")
    if step:
        free += BY_CONTENT
    else:
        old = configs.at_step(old, 0)
        new = configs.at_step(new, 0)
    refused = []
    for key, (was, now) in configs.differences(old, new).items():
        if may_change(key, free):
            continue
        if step == 0 and not is_of_model(key) and key not in configs.STARTS:
            continue
        if not has_decay_changed and is_of_future(key, old, new, step):
            continue
        reasons = []
        name = key.partition(".")[2].removesuffix(".steps")
        if done := configs.steps_by_phase(old, step).get(name):
            reasons.append(f"{done} are done")
        if has_decay_changed:
            reasons.append("the decay has begun")
        before = f"{was!r} in the run"
        if reasons:
            before += f" ({', '.join(reasons)})"
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


def schedule_at(config: ConfigDict, step: int) -> configs.Schedule:
    """Returns the schedule of the last one of `step` steps, or the first one."""
    return [each for each in configs.schedules(config) if each.first < max(1, step)][-1]


def is_stable(schedule: configs.Schedule) -> bool:
    """Returns whether a schedule is constant until a decay by the square root, if it has one."""
    return schedule.name == "constant" or (schedule.name == "sqrt" and schedule.decay > 0)


def decay_begun(config: ConfigDict, step: int) -> list:
    """Returns what decides the learning rates of the decay that has begun, if one has: they follow the tokens of the
    phases in which it lasts."""
    schedule = schedule_at(config, step)
    begin = schedule.stop - schedule.decay
    if not schedule.decay or step <= begin:
        return []
    later = [phase[2:6] for phase in schedule.phases if phase.stop > begin]  # steps and shapes
    return [schedule.decay, schedule.end, *later]

"""Resume rules: the config keys that a resumed run may change, beside `config.CHANGEABLE`."""

from ml_collections import ConfigDict

from bert_jax import config as configs


def is_of_model(key: str) -> bool:
    """Whether imported parameters would mean something else with another value."""
    group, _, name = key.partition(".")
    free = ("dropout", "attention_dropout", "initializer")
    return (group == "model" and name not in free) or key in ("objective.name", "objective.pairs")


def refusals(old: ConfigDict, new: ConfigDict, step: int) -> list[str]:
    """The keys in which a run at `step` may not differ from its saved config: all but cadence, place and future."""
    before, after = configs.phases(old), configs.phases(new)
    started = {phase.name for phase in before if phase.first < step}
    # The steps of the phase that the run is in, or has just ended with, may change; not to fewer than are done.
    unfinished = {phase.name for phase in before if phase.last > step or phase == before[-1]}
    unfinished &= {phase.name for phase in after if phase.last >= step}
    changes = configs.differences(*map(configs.spelled_out, (old, new)))
    refused = []
    for key, (was, now) in changes.items():
        group, _, rest = key.partition(".")
        if configs.may_change(key) or (step == 0 and not is_of_model(key)):
            continue
        if group == "phases":
            name, _, what = rest.partition(".")
            if name not in started or (what == "steps" and name in unfinished):
                continue
        if group == "phase_order" and was[: len(started)] == now[: len(started)]:
            continue
        refused.append(f"config.{key}: {was!r} in the run, {now!r} now")
    return refused

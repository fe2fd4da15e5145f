"""Within how many seconds processes have to end: the deadlines that their config sets, and what comes on top."""

from bert_jax.runs import watchdog

# Seconds; compiled programs are there already.
DEADLINES = {"compile": 60, "step": 8, "save": 10, "evaluate": 15}
HEARTBEAT = 10  # seconds after which JAX ends all, where one says nothing
SLACK = 8.0  # seconds: last words, and what a busy machine takes until the last is gone
AT_ANY = ("step", "save", "evaluate")  # what may be going on in a run that has begun


def keys() -> dict:
    """Of the config."""
    deadlines = {f"deadlines.{key}": seconds for key, seconds in DEADLINES.items()}
    return deadlines | {"distributed.heartbeat": HEARTBEAT}


def to_end(*armed: str) -> float:
    """Seconds until all have ended, of which one is stuck or gone under the longest of these deadlines."""
    return max(DEADLINES[key] for key in armed) + HEARTBEAT + watchdog.MOMENT + SLACK


def to_save(*left: str) -> float:
    """Seconds until all have done what is left to do, have saved, and ended."""
    return sum(DEADLINES[key] for key in left) + SLACK

"""A device's memory that is too small for a program: told in one line, with the numbers, and with what helps."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import jax

from bert_jax.errors import BadInput, one_line

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
NUMBER = r"(\d[\d.]*)\s?([KMGT]?)"
# "... Used 20.50G of 15.75G hbm ...", and "... temporaries (20.50G) exceeds available HBM (15.75G)."
TOO_LARGE = (
    re.compile(rf"Used {NUMBER} of {NUMBER} hbm"),
    re.compile(rf"\({NUMBER}\) exceeds available HBM \({NUMBER}\)"),
)
HELP = "a smaller config.train.rows_per_device needs less, and so does config.train.remat"


class TooLarge(BadInput):
    """A step that does not fit: `used` bytes of the `there` that a device has."""

    def __init__(self, used: float, there: float):
        super().__init__(used, there)  # what a process needs that gets it from another
        self.used, self.there = used, there

    def __str__(self) -> str:
        over = (self.used - self.there) / UNITS["G"]
        return f"needs {gib(self.used)} of the {gib(self.there)} of a device, {over:.2f} too many"


def too_large(error: Exception) -> TooLarge | None:
    """What the TPU compiler says of a program and a device's memory, if it is that."""
    for pattern in TOO_LARGE:
        if found := pattern.search(str(error)):
            return TooLarge(size(found[1], found[2]), size(found[3], found[4]))
    return None


@contextmanager
def told(what: str) -> Iterator[None]:
    """Within it, devices without room for `what` raise BadInput."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        reason = too_large(error) or one_line(error)
        raise BadInput(f"{what}: out of memory: {reason}; {HELP}") from error


def size(number: str, unit: str) -> float:
    return float(number.rstrip(".")) * UNITS[unit]


def gib(count: float) -> str:
    return f"{count / UNITS['G']:.2f} GiB"

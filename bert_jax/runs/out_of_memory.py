"""Reports in one line that a program exceeds a device's memory: by how much, and which config keys help."""

import re
from contextlib import contextmanager

import jax

from bert_jax.errors import BadInput, one_line
from bert_jax.parallel.chips import gib

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
NUMBER = r"(\d[\d.]*)\s?([KMGT]?)"
# Two messages of the TPU compiler: "... Used 20.50G of 15.75G hbm ...", and
# "... temporaries (20.50G) exceeds available HBM (15.75G)."
TOO_LARGE = (
    re.compile(rf"Used {NUMBER} of {NUMBER} hbm"),
    re.compile(rf"\({NUMBER}\) exceeds available HBM \({NUMBER}\)"),
)
HELP = "reduce config.train.tokens_per_device or set config.train.remat"


class TooLarge(BadInput):
    """A program that needs `used` bytes of the `available` bytes of a device."""

    def __init__(self, used: float, available: float):
        super().__init__(used, available)  # both arguments, so that the error can be pickled
        self.used = used
        self.available = available

    def __str__(self) -> str:
        over = gib(self.used - self.available)
        return f"needs {gib(self.used)} of {gib(self.available)} GiB, {over} too much"


def too_large(error: Exception) -> TooLarge | None:
    """Parses the TPU compiler's error about a program that exceeds a device's memory; None for other errors."""
    for pattern in TOO_LARGE:
        match = pattern.search(str(error))
        if match:
            return TooLarge(size(match[1], match[2]), size(match[3], match[4]))
    return None


@contextmanager
def explain(what: str):
    """Turns out-of-memory errors of devices within the context into BadInput that names the program `what`."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        reason = too_large(error) or one_line(error)
        raise BadInput(f"{what}: out of device memory: {reason}; {HELP}") from error


def size(number: str, unit: str) -> float:
    """Returns the bytes of a number with a unit, such as ('20.50', 'G')."""
    return float(number.rstrip(".")) * UNITS[unit]

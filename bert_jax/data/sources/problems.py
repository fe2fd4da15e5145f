"""Counts of what is wrong with a text: {reason: how often}, and under "bytes of REASON" with how much text."""

from collections import Counter
from collections.abc import Mapping

BYTES = "bytes of "


def add_problem(problems: Counter, reason: str, size: int) -> None:
    """Counts a problem with `size` bytes of text."""
    problems[reason] += 1
    problems[BYTES + reason] += size


def numbers_of(problems: Mapping[str, int]) -> dict[str, int]:
    """Returns how often each problem occurred: {reason: number}."""
    return {reason: number for reason, number in problems.items() if not reason.startswith(BYTES)}


def describe(problems: Mapping[str, int]) -> str:
    """Returns the numbers of the problems as text."""
    return ", ".join(f"{number} {reason}" for reason, number in numbers_of(problems).items())

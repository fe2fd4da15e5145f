"""Fields of examples and rows (dots in a name address nested ones, as in `meta.body`); errors of data set libraries."""

import contextlib
import re
from collections.abc import Iterator

from bert_jax.errors import BadInput, one_line


def text_of(row: dict, field: str) -> bytes:
    """Returns the text of a field; b'' if it, or what it is nested in, is null."""
    for name in [field] if field in row else field.split("."):
        row = row and row[name]
    return (row or "").encode()


def named(feature, values) -> list:
    """Returns the values of a feature as a list; class labels, which both libraries have, as their names. A negative
    label is unknown: None."""
    names = getattr(feature, "names", None)
    return [names[value] if value >= 0 else None for value in values] if names else [*values]


@contextlib.contextmanager
def explain(pattern: str, source: str, field: str, is_reading: bool) -> Iterator[tuple]:
    """Yields the groups of the pattern in a source; the last one is the split. Raises BadInput if it does not match.

    Converts every error of a library to BadInput, but one of the disk or network to OSError; with is_reading all
    errors, since BadInput would delete the finished shards.
    """
    match = re.fullmatch(pattern + r"(?:\[(.+)\])?", source)
    if not match:
        forms = "tfds:NAME[SPLIT] or hf:NAME:CONFIG[SPLIT]"
        raise BadInput(f"config.corpus.source: {source}: expected {forms}")
    *names, split = match.groups()
    try:
        yield *names, split or "train"
    except Exception as error:  # the libraries raise many types
        is_missing = isinstance(error, FileNotFoundError) or not isinstance(error, OSError)
        kind = BadInput if is_missing and not is_reading else OSError
        raise kind(f"{source}, field {field!r}: {one_line(error, 300)}") from None

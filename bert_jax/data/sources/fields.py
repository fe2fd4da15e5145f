"""Fields of examples and rows; dots in a name address nested ones, as in `meta.body`."""

import functools
import operator


def get_field(example, field: str):
    """Returns a field of an example, or of the features of a data set."""
    return functools.reduce(operator.getitem, field.split("."), example)


def text_of(row: dict, field: str) -> bytes:
    """Returns the text of a field; b'' if it, or what it is nested in, is null."""
    for name in [field] if field in row else field.split("."):
        row = row and row[name]
    return (row or "").encode()

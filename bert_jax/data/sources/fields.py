"""Fields of examples and rows (a dot in a name is a part of it, or addresses a nested field, as in `meta.body`); errors
of data set libraries."""

import contextlib
import re
from collections.abc import Iterator

from bert_jax.errors import BadInput, one_line

NESTED = "translation"  # column of a data set whose objects have the texts: {language: text}


def value_of(row, field: str):
    """Returns the value of a field of a mapping, None if it has none: under its name, or else nested under a part."""
    if not hasattr(row, "keys"):
        return None
    if field in row:
        return row[field]
    for name in row.keys():
        if field.startswith(f"{name}."):
            value = value_of(row[name], field.removeprefix(f"{name}."))
            if value is not None:
                return value
    return None


def texts_of(table, field: str) -> Iterator[bytes]:
    """Yields the text of a field in each row of a pyarrow.Table, which may be no UTF-8; b'' for a null."""
    while field not in table.column_names:
        table = table.flatten()  # columns nested in `meta` become `meta.body`
    column = table[table.column_names.index(field)]
    for text in column.cast("large_binary").to_pylist():
        yield text or b""


def name_labels(feature, values) -> list:
    """Returns the values of a feature as a list; class labels, which both libraries have, as their names. A negative
    label is unknown: None."""
    names = getattr(feature, "names", None)
    if not names:
        return list(values)
    return [names[value] if value >= 0 else None for value in values]


@contextlib.contextmanager
def explain(pattern: str, source: str, field: str, is_reading: bool) -> Iterator[tuple]:
    """Yields the groups of the pattern in a source; the last one is the split. Raises BadInput if it does not match.

    Converts every error of a library to BadInput, but one of the disk or network to OSError; with is_reading all
    errors, since BadInput would delete the finished shards.
    """
    match = re.fullmatch(pattern + r"(?:\[(.+)\])?", source)
    if not match:
        raise BadInput(
            f"config.corpus.source: {source}: expected tfds:NAME[SPLIT] or hf:NAME:CONFIG[SPLIT]"
        )
    *names, split = match.groups()
    try:
        yield *names, split or "train"
    except Exception as error:  # the libraries raise many types
        reason = one_line(error.__cause__ or error, 300)
        reason = reason.partition(" Example of usage")[0]  # of the library
        message = f"{source}, field {field!r}: {reason}"
        is_of_disk = isinstance(error, OSError) and not isinstance(error, FileNotFoundError)
        if is_reading or is_of_disk:
            raise OSError(message) from None
        raise BadInput(message) from None

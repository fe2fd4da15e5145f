"""Parquet files: each row is a document, its text in the column `corpus.field`; dots address nested columns."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from bert_jax.data.sources.fields import texts_of
from bert_jax.data.sources.files import explain
from bert_jax.errors import BadInput

ROWS = 256  # read at a time


@contextlib.contextmanager
def open_file(path: Path):
    """Yields pyarrow's reader of a file. Raises BadInput if it is damaged, and OSError if the disk fails."""
    import pyarrow.parquet

    with explain(path, pyarrow.ArrowException), pyarrow.parquet.ParquetFile(path) as file:
        yield file


def check(path: Path, field: str) -> None:
    """Raises BadInput unless the file has a column of text with this name."""
    with open_file(path) as file:
        columns = [file.schema.column(number) for number in range(len(file.schema))]
    names = []
    for column in columns:
        if column.logical_type.type == "STRING" and not column.max_repetition_level:  # no list
            names.append(column.path)
    if field not in names:
        choices = ", ".join(names) or "none"
        raise BadInput(f"config.corpus.field={field}: no text column of {path}; it has {choices}")


def texts(path: Path, field: str) -> Iterator[bytes]:
    """Yields the text of each row in order; b'' for a null."""
    import pyarrow

    with open_file(path) as file:
        for batch in file.iter_batches(ROWS, columns=[field]):
            yield from texts_of(pyarrow.Table.from_batches([batch]), field)

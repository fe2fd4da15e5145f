"""Parquet files, which may be compressed: in a corpus, each row is a document, its text in the column `corpus.field`;
dots address nested columns."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from bert_jax.data.sources.fields import texts_of
from bert_jax.data.sources.files import OPENERS, explain, open_text
from bert_jax.errors import BadInput

ROWS = 256  # read at a time


@contextlib.contextmanager
def open_file(path: Path):
    """Yields pyarrow's reader of a file; reads all of one that is compressed, or a pipe. Raises BadInput if it is
    damaged, and OSError if the disk fails."""
    import pyarrow.parquet

    source = path
    with explain(path, pyarrow.ArrowException):
        if path.suffix.lower() in OPENERS or not path.is_file():
            with open_text(path) as file:
                source = pyarrow.BufferReader(file.read())
        with pyarrow.parquet.ParquetFile(source) as file:
            yield file


def rows(path: Path) -> list[dict]:
    """Returns all rows. Raises BadInput for text that is not UTF-8."""
    with open_file(path) as file:
        table = file.read()
        table.validate(full=True)
        return table.to_pylist()


def texts(path: Path, reading, problems) -> Iterator[bytes]:
    """Yields the text of each row in order; b'' for a null. reading: see text.Reading.

    Raises BadInput unless the file has a column of text with the name of the field.
    """
    import pyarrow

    field = reading.field
    with open_file(path) as file:
        names = [
            column.path
            for column in map(file.schema.column, range(len(file.schema)))
            if column.logical_type.type == "STRING" and not column.max_repetition_level  # no list
        ]
        if field not in names:
            choices = ", ".join(names) or "none"
            hint = f"no text column of {path}; it has {choices}"
            raise BadInput(f"config.corpus.field={field}: {hint}")
        for batch in file.iter_batches(ROWS, columns=[field]):
            yield from texts_of(pyarrow.Table.from_batches([batch]), field)

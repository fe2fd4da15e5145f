"""Tables of texts and labels: TSV, CSV, JSON and Parquet files, and data sets of the libraries that corpus.py names.

A TSV file has no quotes, as those of GLUE. A column is named by its header, or by its number from 0 in a file without
one.
"""

import csv
import io
import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from bert_jax.data import corpus
from bert_jax.data.sources.text import replace_surrogates
from bert_jax.errors import BadInput, one_line

Rows = Iterable[tuple[str, dict | None]]  # (place, {name of a column: value}) of each row


def read(source: Path | str, columns: list[str], optional: str = "") -> list[tuple[str, list]]:
    """Returns (place, values of the columns) of each row of a file or a data set. The place is the file and the line,
    or the row in a JSON array, a Parquet file or a data set, for messages.

    A value is text, '' for a null or NaN. optional: one of the columns, that of the label, which the source may lack;
    in it a null is None, and a list is a list of texts. A row with another number of columns than the first one has
    the values [None]. An empty line of a .csv or .tsv is a row of nulls, except at the end of the file.

    Raises BadInput, which names the file, and the column or line.
    """
    library = corpus.library_of(str(source))
    if library:
        table = library.table(source, columns)
        names, rows = [*table], number_rows(source, rows_of_columns(table))
    else:
        names, rows = read_file(source, columns, optional)
    for name in columns:
        if names.count(name) > 1:
            raise BadInput(f"{source}: has two columns {name!r}")
        if name not in (*names, optional):
            raise BadInput(f"{source}: no column {name!r}; it has {names}")
    return [(place, cells(place, row, columns, optional)) for place, row in rows]


def number_rows(source: Path | str, rows: Iterable) -> Iterator[tuple]:
    return ((f"{source}, row {number}", row) for number, row in enumerate(rows, 1))


def rows_of_columns(columns: dict[str, list]) -> Iterator[dict]:
    return (
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    )


def read_file(path: Path, columns: list[str], optional: str) -> tuple[list[str], Rows]:
    """Returns the names of the columns of a file, and its rows."""
    suffixes = [suffix.lower() for suffix in path.suffixes] or [""]
    kind = suffixes[-1]
    if kind in (".gz", ".bz2", ".zst"):
        kind = suffixes[-2:][0]
    if kind == ".parquet":
        table = read_bytes(path, is_table=True)
        return table.column_names, number_rows(path, table.to_pylist())
    if kind in (".json", ".jsonl"):
        return read_json(path)
    return read_records([*split_records(path, kind == ".csv")], columns, optional)


def read_bytes(path: Path, is_table: bool = False):
    """Returns the bytes of a file, which may be compressed, or the table of a Parquet file."""
    import pyarrow
    from pyarrow import parquet

    try:
        if is_table:
            table = parquet.read_table(path)
            table.validate(full=True)  # raises ValueError for text that is not UTF-8
            return table
        with pyarrow.input_stream(str(path), compression="detect") as file:
            return file.read()
    except (OSError, ValueError) as error:
        raise BadInput(f"{path}: cannot be read as a table ({one_line(error, 300)})") from None


def read_text(path: Path) -> str:
    """Returns the text of a file. Raises BadInput with the line if it is not UTF-8."""
    content = read_bytes(path)
    try:
        # Joined files have a byte order mark at each beginning.
        return re.sub("(?<=[\r\n])\ufeff", "", content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise BadInput(f"{path}:{line}: not UTF-8") from None


def read_json(path: Path) -> tuple[list[str], Rows]:
    """Reads an object per line, an array of objects, or an object with an array of values for each column."""
    text, rows = read_text(path), []
    try:
        documents = [*number_rows(path, rows_of_document(json.loads(text)))]
    except (AttributeError, RecursionError, ValueError):  # not a single document that is a table
        lines = enumerate(io.StringIO(text, newline=None), 1)
        documents = [(f"{path}:{number}", line) for number, line in lines if line.strip()]
    for place, row in documents:
        try:
            row = json.loads(row) if isinstance(row, str) else row
            rows.append((place, {**row}))
        except (RecursionError, TypeError, ValueError) as error:
            raise BadInput(f"{place}: not a JSON object ({one_line(error)})") from None
    rows = replace_surrogates(rows, path)
    return [*dict.fromkeys(name for _, row in rows for name in row)], rows


def rows_of_document(document) -> Iterable:
    """Returns the rows of a JSON array or of an object of columns, which may be objects, as pandas writes them."""
    if isinstance(document, list):
        return document
    columns = {n: [*x.values()] if isinstance(x, dict) else x for n, x in document.items()}
    if all(isinstance(values, list) for values in columns.values()):
        return rows_of_columns(columns)
    return [document]


def split_records(path: Path, is_csv: bool) -> Iterator[tuple[str, list[str]]]:
    """Yields (place, values) of the lines of a file; in CSV, values in quotes may have several."""
    csv.field_size_limit(sys.maxsize)
    form = {"strict": True} if is_csv else {"delimiter": "\t", "quoting": csv.QUOTE_NONE}
    records = csv.reader(io.StringIO(read_text(path), newline=""), **form)
    line = 1
    try:
        for values in records:
            yield f"{path}:{line}", values
            line = records.line_num + 1
    except csv.Error as error:
        raise BadInput(f"{path}:{line}: not CSV ({error})") from None


def read_records(records: list, columns: list[str], optional: str) -> tuple[list[str], Rows]:
    """Returns the names of the columns, and the rows of records. The first one is the header, but not if the columns
    are numbers and it does not consist of such."""
    while records and is_empty(records[-1][1]):
        records.pop()
    names = records[0][1] if records else []
    is_numbered = all(map(str.isdecimal, columns))
    if is_numbered and not ("".join(names).isdecimal() and {*columns} - {optional} <= {*names}):
        names = [*map(str, range(len(names)))]
    else:
        del records[:1]
    return names, ((place, row_of(names, values)) for place, values in records)


def row_of(names: list[str], values: list[str]) -> dict | None:
    if is_empty(values):
        return {}
    return dict(zip(names, values, strict=True)) if len(values) == len(names) else None


def is_empty(values: list[str]) -> bool:
    return not values or (len(values) == 1 and values[0].isspace())


def cells(place: str, row: dict | None, columns: list[str], optional: str) -> list:
    """Returns the values of the columns of a row; see `read`."""
    if row is None:
        return [None]
    values = [row.get(name) for name in columns]
    for number, value in enumerate(values):
        if not isinstance(value, str):
            name = columns[number]
            values[number] = cell(f"{place}: column {name!r}", value, name == optional)
    return values


def cell(place: str, value, is_label: bool) -> str | list[str] | None:
    """Returns a value as text; of a label, a list as a list of texts, and a null as None."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if is_label and isinstance(value, list):
        return [text_of(place, each) for each in value]
    if value is None or value != value:  # NaN, which pandas writes for a null
        return None if is_label else ""
    return text_of(place, value)


def text_of(place: str, value) -> str:
    """Returns a value as text. Raises BadInput for a list, an object, or a null in a list."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if value is None or isinstance(value, list | tuple | dict):
        raise BadInput(f"{place}: {str(value)[:60]!r}: expected text")
    return str(value)

"""Records of corpora, tables and inputs: TSV, CSV, JSON and Parquet files, data sets of libraries, parallel files, and
lines. Commands and tasks refuse the first record that is wrong; corpora count it (see problems.py). JSON lines and text
of a corpus are parsed by its workers, see text.py.

A TSV file has no quotes, as those of GLUE. A column is named by its header, or by its number from 0 in a file without
one. Parallel files have a column each, whose name ends theirs: the rows of `train` are the lines of train.en and
train.de.
"""

import contextlib
import csv
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import dropwhile, product
from pathlib import Path
from types import ModuleType

import numpy as np

from bert_jax.data.sources import builtin, files, hf, parquet, tfds
from bert_jax.data.sources.fields import NESTED
from bert_jax.data.sources.text import has_visible, replace_surrogates, text_of_record
from bert_jax.errors import BadInput, one_line

Rows = list[tuple[str, list]]  # (location, values of the columns that are read) of each row
# Names of all columns, and (location, {column: value}) of each row: {} of an empty line, None of a row with another
# number of columns than the first one.
Table = tuple[list[str], Iterable[tuple[str, dict | None]]]
LINE = "a line each"  # the column of a file of lines
HIDDEN = "\ud800"  # a carriage return
OTHER_COLUMNS = "has another number of columns than the first row"


def library_of(name: str) -> ModuleType | None:
    """Returns the module for a source that is a data set, of a library or built in; None for other sources."""
    for module in (tfds, hf, builtin):
        if name.startswith(module.PREFIX):
            return module
    return None


def read(
    source: Path | str,
    columns: list[str],
    optional: str = "",
    table: Table | None = None,
) -> Rows:
    """Returns (location, values of the columns) of each row of a file or a data set. The location is the file and the
    line, or the row in a JSON array, a Parquet file or a data set, for messages. Columns may be nested in the column
    NESTED.

    A value is text, '' for a null or NaN. optional: the last of the columns, that of the label, which the source may
    lack; in it a null is None, and a list is a list of texts. A row with another number of columns than the first one
    has the values [None]. An empty line is a row of nulls, except at the end of the file.

    table: the result of `read_file`, if there is one; then no row may have another number of columns.

    Raises BadInput, which names the file, and the column or line.
    """
    names, rows = table or read_source(source, columns, optional)
    for name in columns:
        count = names.count(name)
        if count > 1 or (not count and name != optional):
            reason = f"{count or 'no'} columns named {name!r}; it has {names or 'none'}"
            if name.isdecimal():
                reason += "; without a header, all columns are named by numbers"
            raise BadInput(f"{source}: {reason}")
    result = []
    for location, row in rows:
        values = [None]
        if row is None and table:
            raise BadInput(f"{location}: {OTHER_COLUMNS}")
        if row is not None:
            values = [
                text_of_cell(f"{location}: column {name!r}", row.get(name), name == optional)
                for name in columns
            ]
        result.append((location, values))
    if not result:
        raise BadInput(f"{source}: has no rows")
    return result


def read_source(
    source: Path | str,
    columns: list[str],
    optional: str,
) -> Table:
    """Returns the table of a data set, of parallel files, or of a file."""
    if library := library_of(str(source)):
        table = library.table(source, columns)
        rows = number_rows(source, rows_of_columns(table))
        return table_of(rows)
    if paths := find_parallel(source, columns):
        for name in columns:
            if name not in paths and name != optional:
                raise BadInput(f"{source}.{name}: no such file beside {paths[min(paths)]}")
        return read_parallel(paths)
    return read_file(source, suffix_of(source) or ".tsv", columns, optional)


def read_file(
    path: Path,
    kind: str,
    columns: list[str],
    optional: str = "",
) -> Table:
    """Returns the table of a file. kind: see `suffix_of`; '': its lines are rows of the column LINE, unless the first
    one has one of the columns between tabs, or these are numbers."""
    if kind == ".parquet":
        with readable(path):
            rows = parquet.rows(path)
        rows = number_rows(path, rows)
        return table_of(rows)
    if kind in (".json", ".jsonl"):
        rows = read_json(path)
        return table_of(replace_surrogates(rows))
    lines = read_lines(path)
    if not kind:
        header = next(filter(str.strip, lines), "").split("\t")
        is_table = {*columns} & {*header} or all(map(str.isdecimal, columns))
        if not (header[1:] and is_table):
            rows = ({LINE: line} for line in lines)
            return [LINE], number_rows(path, rows, ":")
    rows = split_rows(path, lines, kind == ".csv")
    names, rows = split_header(rows, columns, optional)
    return names, rows_of_cells(names, rows)


def rows_of_cells(names: list[str], rows: list[tuple]) -> Iterator[tuple[str, dict | None]]:
    """Yields the rows of a Table with these names, of (location, values)."""
    for location, values in rows:
        row = dict(zip(names, values, strict=False))
        if len(values) not in (0, len(names)):
            row = None
        yield location, row


def number_rows(
    source: Path | str,
    rows: Iterable,
    mark: str = ", row ",
) -> Iterator[tuple]:
    """Yields (location, row) of each row. mark: between the source and the number of a location."""
    for number, row in enumerate(rows, 1):
        yield f"{source}{mark}{number}", row


def table_of(rows: Iterable[tuple[str, dict]]) -> Table:
    """Returns a table of rows, of which the texts that an object in the column NESTED has become columns, instead of
    those of the same names."""
    names = {}
    rows = [*rows]
    for _, row in rows:
        nested = row.get(NESTED)
        if isinstance(nested, dict):
            row |= nested
        names |= row
    return [*names], rows


def find_parallel(path: Path, columns: list[str]) -> dict[str, Path]:
    """Returns {column: PATH.COLUMN, which may be compressed} of those that exist; {} if PATH is a file itself."""
    paths = {}
    if path.is_file():
        return paths
    for column, end in product(columns, ("", *files.OPENERS)):
        file = f"{path}.{column}{end}"
        if os.path.isfile(file):
            paths.setdefault(column, Path(file))
    return paths


def read_parallel(paths: dict[str, Path]) -> Table:
    """Returns the table of parallel files. Raises BadInput if they have different numbers of lines."""
    columns = {name: read_lines(path) for name, path in paths.items()}
    if len({*map(len, columns.values())}) > 1:
        sizes = [f"{paths[name]}: {len(lines):,} lines" for name, lines in columns.items()]
        raise BadInput(f"{', '.join(sizes)}; parallel files have the same number")
    first, *_ = paths.values()
    rows = rows_of_columns(columns)
    return [*paths], number_rows(first, rows)


def read_texts(path: Path, column: str = "text") -> list[tuple[str, str]]:
    """Returns (location, text) of the rows of a table, of which this is the column, or of the lines of another file."""
    table = read_file(path, suffix_of(path), [column])
    names, _ = table
    if names == [LINE]:
        column = LINE
    rows = read(path, [column], table=table)
    return [(location, text) for location, [text] in rows]


def suffix_of(path: Path) -> str:
    """Returns the end of the name of a table, in lower case and without that of its compression; '' of another file."""
    match = re.search(rf"(?i)(\.jsonl?|\.csv|\.tsv|\.parquet){files.COMPRESSION}", path.name)
    return match[1].lower() if match else ""


def texts(path: Path, reading, problems: Counter) -> Iterator[bytes]:
    """Yields the text of a field in each row of a file in the format csv, tsv or json, which is read whole. Counts rows
    without it. reading: see text.Reading."""
    if reading.form == "json":
        rows = read_json(path)
    else:
        _, rows = read_file(path, f".{reading.form}", [reading.field])
    for _, row in rows:
        if row != {}:  # an empty line
            yield from text_of_record(row, reading.field, len(str(row)), problems)


@contextlib.contextmanager
def readable(path: Path) -> Iterator[None]:
    """Converts errors of the system to BadInput: a table is read before any work."""
    try:
        yield
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror})") from None


def read_text(path: Path) -> str:
    """Returns the text of a file. Raises BadInput with the line if it is not UTF-8, and for other formats."""
    with readable(path):
        with files.open_text(path) as file:
            content = file.read()
    files.check_text(path, content)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise BadInput(f"{path}:{line}: not UTF-8") from None
    # Joined files have a byte order mark at each beginning.
    return text.replace("\n\ufeff", "\n").replace("\r\ufeff", "\r")


def read_lines(path: Path) -> list[str]:
    """Returns the lines of a file. Only its line breaks end them, since parallel files would lose their order, and rows
    would be cut, at others within sentences: carriage returns alone end lines in a text without line feeds."""
    text = read_text(path)
    if "\n" not in text:
        text = text.replace("\r", "\n")
    lines = [line.rstrip("\r") for line in text.split("\n")]
    if not lines[-1]:
        lines.pop()
    return lines


def read_json(path: Path) -> list[tuple[str, dict]]:
    """Returns (location, object) of a file with an object per line, an array of objects, or an object of columns."""
    text = "\n".join(read_lines(path)).rstrip()
    try:
        document = json.loads(text or "[]", object_pairs_hook=to_object)
        rows = [*number_rows(path, rows_of_document(document))]
    except (RecursionError, ValueError):  # not a single document
        rows = []
        for location, line in number_rows(path, text.split("\n"), ":"):
            try:
                row = json.loads(line.strip() or "{}", object_pairs_hook=to_object)
            except (RecursionError, ValueError) as error:
                raise BadInput(f"{location}: not a JSON object ({one_line(error)})") from None
            rows.append((location, row))
    for location, row in rows:
        if not isinstance(row, dict):
            raise BadInput(f"{location}: {str(row)[:60]!r}: not a JSON object")
    return rows


def to_object(pairs: list[tuple]) -> dict:
    """Returns an object of JSON. Raises ValueError if a key is in it twice."""
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError(f"a key is twice in {[name for name, _ in pairs]}")
    return values


def rows_of_document(document) -> Iterable:
    """Returns the rows of an array, or of an object of columns: arrays, or objects with the same keys, as of pandas."""
    if isinstance(document, list):
        return document
    # An object in the column NESTED is of a file of one row.
    if not isinstance(document, dict) or isinstance(document.get(NESTED), dict):
        return [document]
    columns = list(document.values())
    if all(isinstance(column, dict) and list(column) == list(columns[0]) for column in columns):
        columns = [list(column.values()) for column in columns]
    if not all(isinstance(column, list) for column in columns):
        return [document]
    table = zip(document, columns, strict=True)
    return rows_of_columns(dict(table))


def rows_of_columns(columns: dict[str, list]) -> Iterator[dict]:
    """Yields a row for each index of the columns. Raises ValueError unless they have the same length."""
    for row in zip(*columns.values(), strict=True):
        yield dict(zip(columns, row, strict=True))


def split_rows(
    path: Path,
    lines: list[str],
    is_csv: bool,
) -> list[tuple[str, list[str]]]:
    """Returns (location, values) of the lines of a file, [] for an empty one but at the end; in CSV, values in quotes
    may have several lines."""
    csv.field_size_limit(sys.maxsize)
    backwards = dropwhile(lambda line: not line.strip(" "), reversed(lines))
    # The module ends rows at carriage returns; text has no surrogates.
    hidden = [line.replace("\r", HIDDEN) + "\n" for line in backwards]
    dialect = {"strict": True}
    if not is_csv:
        dialect = {
            "delimiter": "\t",
            "quoting": csv.QUOTE_NONE,
        }
    reader = csv.reader(reversed(hidden), **dialect)
    rows = []
    line = 1
    try:
        for values in reader:
            values = [value.replace(HIDDEN, "\r") for value in values]
            if len(values) == 1 and values[0] and not has_visible(values[0]):
                values = []
            rows.append((f"{path}:{line}", values))
            line = reader.line_num + 1
    except csv.Error as error:
        raise BadInput(f"{path}:{line}: not CSV ({error})") from None
    return rows


def split_header(
    rows: list,
    columns: list[str],
    optional: str,
) -> tuple[list[str], list]:
    """Returns the header, the first line that is not empty, and the rows below it. If the columns are numbers, there is
    no header, unless that line has these numbers; that of the optional column, too, if it has others than numbers."""
    filled = [*dropwhile(lambda row: not row[1], rows)]
    names = filled[0][1] if filled else []
    required = {*columns}
    if "".join(names).isdecimal():
        required.discard(optional)
    if all(map(str.isdecimal, columns)) and not required <= {*names}:
        return [*map(str, range(len(names)))], rows
    return names, filled[1:]


def text_of_cell(location: str, value, is_label: bool) -> str | list[str] | None:
    """Returns a value as text; of a label, a list as a list of texts, and a null as None."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if is_label and isinstance(value, list):
        return [text_of(location, part) for part in value]
    if value is None or value != value:  # NaN, which pandas writes for a null
        return None if is_label else ""
    return text_of(location, value)


def text_of(location: str, value) -> str:
    """Returns a value as text. Raises BadInput for a list, an object, or a null or NaN in a list."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    is_null = value is None or value != value
    if is_null or isinstance(value, list | tuple | dict):
        raise BadInput(f"{location}: {str(value)[:60]!r}: expected text")
    return str(value)

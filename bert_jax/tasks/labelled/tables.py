"""Tables of texts and labels: TSV, CSV, JSON and Parquet files, data sets of the libraries that corpus.py names, and
parallel files.

A TSV file has no quotes, as those of GLUE. A column is named by its header, or by its number from 0 in a file without
one. Parallel files have a column each, whose name ends theirs: the rows of `train` are the lines of train.en and
train.de.
"""

import csv
import difflib
import json
import os
import re
import sys
from collections.abc import Iterable
from itertools import chain, dropwhile, product
from pathlib import Path

import numpy as np

from bert_jax.data import corpus
from bert_jax.data.sources import files
from bert_jax.data.sources.fields import NESTED
from bert_jax.data.sources.text import has_visible, replace_surrogates
from bert_jax.errors import BadInput, one_line

Rows = list[tuple[str, list | tuple]]  # (place, values of all columns) of each row
Table = tuple[list[str], Rows]  # names of the columns, and the rows
COMPRESSED = ("", *files.OPENERS)  # ends of names
# {pattern of the beginning of a file that is not read: what it is}
FORMATS = {
    rb"PK\x03\x04|\xd0\xcf\x11\xe0": "a ZIP archive or an Office document, such as an Excel workbook",
    rb"\xff\xfe|\xfe\xff|(?s:.\0.\0|\0.\0)": "text in UTF-16",
    rb"(\xef\xbb\xbf)?\s*(<[?!](?s:.*?))?<(tmx|xliff)\b": "XML, such as TMX or XLIFF",
    rb"PAR1\x15": "a Parquet file of another name",
    rb"%PDF-": "PDF",
    files.ARCHIVE.pattern: "an archive, or a compressed file of another name",
}
HIDDEN = "\ud800"  # a carriage return
OTHER_COLUMNS = "has another number of columns than the first row"


def read(source: Path | str, columns: list[str], optional: str = "", table=None) -> Rows:
    """Returns (place, values of the columns) of each row of a file or a data set. The place is the file and the line,
    or the row in a JSON array, a Parquet file or a data set, for messages. Columns may be nested in the column NESTED.

    A value is text, '' for a null or NaN. optional: the last of the columns, that of the label, which the source may
    lack; in it a null is None, and a list is a list of texts. A row with another number of columns than the first one
    has the values [None]. An empty line is a row of nulls, except at the end of the file.

    table: the result of `read_file`, if there is one.

    Raises BadInput, which names the file, and the column or line.
    """
    library = corpus.library_of(str(source))
    if table:
        names, rows = table
    elif library:
        table = library.table(source, columns)
        names = [*table]
        rows = number_rows(source, zip(*table.values(), strict=True))
    elif paths := find_parallel(source, columns):
        for name in columns:
            if name not in paths and name != optional:
                raise BadInput(f"{source}.{name}: no such file beside {paths[min(paths)]}")
        names, rows = read_parallel(paths)
    else:
        names, rows = read_file(source, columns, optional)
        if not names:
            raise BadInput(f"{source}: is empty")
    if NESTED in names:
        names, rows = unnest(names, rows, columns)
    for name in columns:
        count = names.count(name)
        if count > 1 or (not count and name != optional):
            reason = f"{count or 'no'} columns named {name!r}; it has {names}"
            if name.isdecimal():
                reason += "; without a header, all columns are named by numbers"
            others = {other.casefold(): other for other in names if other != name}
            for close in difflib.get_close_matches(name.casefold(), others, 1):
                reason += f"; did you mean {others[close]!r}?"
            raise BadInput(f"{source}: {reason}")
    result = []
    for place, values in rows:
        if values and len(values) != len(names):
            row = [None]
        else:
            cells = dict(zip(names, values, strict=False))  # an empty line has none
            row = [
                text_of_cell(f"{place}: column {name!r}", cells.get(name), name == optional)
                for name in columns
            ]
        result.append((place, row))
    return result


def number_rows(source: Path | str, rows: Iterable) -> Rows:
    """Returns (place, row) of rows that have no lines."""
    return [(f"{source}, row {number}", row) for number, row in enumerate(rows, 1)]


def unnest(names: list[str], rows: Rows, columns: list[str]) -> Table:
    """Appends columns of the texts that the objects in the column NESTED have, or fills them where other rows have them
    outside of it. Raises BadInput for a row with both."""
    cells = [dict(zip(names, values, strict=False)).get(NESTED) for _, values in rows]
    objects = [cell if isinstance(cell, dict) else {} for cell in cells]
    if not any(objects):
        return names, rows
    wider = [*dict.fromkeys(chain(names, *objects))]
    filled = []
    for (place, values), texts in zip(rows, objects, strict=True):
        cells = dict(zip(names, values, strict=True))
        for name in columns:
            if name in texts and cells.get(name) is not None:
                raise BadInput(f"{place}: column {name!r} is also in {NESTED!r}")
        cells |= texts
        filled.append((place, [*map(cells.get, wider)]))
    return wider, filled


def find_parallel(path: Path, columns: list[str]) -> dict[str, Path]:
    """Returns {column: PATH.COLUMN, which may be compressed} of those that exist; {} if PATH is a file itself."""
    paths = {}
    if path.is_file():
        return paths
    for column, end in product(columns, COMPRESSED):
        file = f"{path}.{column}{end}"
        if os.path.isfile(file):
            paths.setdefault(column, Path(file))
    return paths


def read_parallel(paths: dict[str, Path]) -> Table:
    """Reads parallel files. Raises BadInput if they have different numbers of lines."""
    columns = {path: read_lines(path) for path in paths.values()}
    sizes = [f"{path}: {len(lines):,} lines" for path, lines in columns.items()]
    if len({*map(len, columns.values())}) > 1:
        raise BadInput(f"{', '.join(sizes)}; parallel files have the same number")
    return [*paths], number_rows(next(iter(columns)), zip(*columns.values(), strict=True))


def read_lines(path: Path) -> list[str]:
    """Returns the lines of a file, see `split_lines`."""
    return split_lines(read_text(path))


def split_lines(text: str) -> list[str]:
    """Returns the lines of a text. Only its line breaks end them, since parallel files would lose their order, and rows
    would be cut, at others within sentences: carriage returns alone end lines in a text without line feeds."""
    if "\n" not in text:
        text = text.replace("\r", "\n")
    lines = [line.rstrip("\r") for line in text.split("\n")]
    if not lines[-1]:
        lines.pop()
    return lines


def read_texts(path: Path, column: str = "text") -> list[tuple[str, str]]:
    """Returns (place, text) of the rows of a table, of which this is the column, or of the lines of another file."""
    if not suffix_of(path):
        return [(f"{path}:{number}", line) for number, line in enumerate(read_lines(path), 1)]
    rows = read(path, [column])
    for place, values in rows:
        if values == [None]:
            raise BadInput(f"{place}: {OTHER_COLUMNS}")
    return [(place, text) for place, [text] in rows]


def suffix_of(path: Path) -> str:
    """Returns the end of the name of a table, in lower case and without that of its compression; '' of another file."""
    pattern = r"(\.jsonl?|\.csv|\.tsv|\.parquet)(?:\.gz|\.bz2|\.xz|\.zst)?$"
    return "".join(re.findall(pattern, path.name.lower()))


def read_file(path: Path, columns: list[str], optional: str) -> Table:
    """Returns the names of the columns of a file, and its rows; [] is an empty line."""
    kind = suffix_of(path)
    if kind == ".parquet":
        table = read_bytes(path, is_table=True)
        columns = (column.to_pylist() for column in table.columns)
        return table.column_names, number_rows(path, zip(*columns, strict=True))
    if kind in (".json", ".jsonl"):
        return read_json(path)
    return split_header(read_records(path, kind == ".csv"), columns, optional)


def read_bytes(path: Path, is_table: bool = False):
    """Returns the bytes of a file, which may be compressed, or the table of a Parquet file."""
    from pyarrow import parquet

    try:
        if is_table:
            table = parquet.read_table(path)
            table.validate(full=True)  # raises ValueError for text that is not UTF-8
            return table
        with files.open_text(path) as file:
            return file.read()
    except (OSError, ValueError) as error:
        raise BadInput(f"{path}: cannot be read ({one_line(error, 300)})") from None


def read_text(path: Path) -> str:
    """Returns the text of a file. Raises BadInput with the line if it is not UTF-8, and for other formats."""
    content = read_bytes(path)
    for pattern, kind in FORMATS.items():
        if re.match(pattern, content):
            raise BadInput(f"{path}: {kind}; expected text, CSV, JSON lines, or Parquet")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise BadInput(f"{path}:{line}: not UTF-8") from None
    # Joined files have a byte order mark at each beginning.
    return text.replace("\n\ufeff", "\n").replace("\r\ufeff", "\r")


def read_json(path: Path) -> Table:
    """Reads an object per line, an array of objects, or an object of columns."""
    text = read_text(path)
    try:
        rows = number_rows(path, rows_of_document(json.loads(text, object_pairs_hook=to_object)))
    except (RecursionError, ValueError):  # not a single document
        rows = []
        for number, line in enumerate(split_lines(text.rstrip()), 1):
            place = f"{path}:{number}"
            rows.append((place, read_line(place, line)))
    for place, row in rows:
        if not isinstance(row, dict):
            raise BadInput(f"{place}: {str(row)[:60]!r}: not a JSON object")
    rows = replace_surrogates(rows, path)
    names = [*dict.fromkeys(name for _, row in rows for name in row)]
    return names, [(place, [row.get(name) for name in names]) for place, row in rows]


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
    rows = zip(*columns, strict=True)
    return [dict(zip(document, row, strict=True)) for row in rows]


def read_line(place: str, line: str):
    """Returns the value of a line of JSON; an empty line is an object."""
    try:
        return json.loads(line, object_pairs_hook=to_object) if line.strip() else {}
    except (RecursionError, ValueError) as error:
        raise BadInput(f"{place}: not a JSON object ({one_line(error)})") from None


def to_object(pairs: list[tuple]) -> dict:
    """Returns an object of JSON. Raises ValueError if a key is in it twice."""
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError(f"a key is twice in {[name for name, _ in pairs]}")
    return values


def read_records(path: Path, is_csv: bool) -> Rows:
    """Returns (place, values) of the lines of a file, [] for an empty one but at the end; in CSV, values in quotes may
    have several lines."""
    csv.field_size_limit(sys.maxsize)
    lines = read_lines(path)
    while lines and not lines[-1].strip(" "):
        lines.pop()
    records = (line.split("\t") if line else [] for line in lines)
    if is_csv:
        # The module ends rows at carriage returns; text has no surrogates.
        records = csv.reader((line.replace("\r", HIDDEN) + "\n" for line in lines), strict=True)
    rows = []
    line = 1
    try:
        for values in records:
            values = [value.replace(HIDDEN, "\r") for value in values]
            if len(values) == 1 and values[0] and not has_visible(values[0]):
                values = []
            rows.append((f"{path}:{line}", values))
            line = records.line_num + 1 if is_csv else line + 1
    except csv.Error as error:
        raise BadInput(f"{path}:{line}: not CSV ({error})") from None
    return rows


def split_header(rows: Rows, columns: list[str], optional: str) -> Table:
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


def text_of_cell(place: str, value, is_label: bool) -> str | list[str] | None:
    """Returns a value as text; of a label, a list as a list of texts, and a null as None."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if is_label and isinstance(value, list):
        return [text_of(place, part) for part in value]
    if value is None or value != value:  # NaN, which pandas writes for a null
        return None if is_label else ""
    return text_of(place, value)


def text_of(place: str, value) -> str:
    """Returns a value as text. Raises BadInput for a list, an object, or a null or NaN in a list."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    is_null = value is None or value != value
    if is_null or isinstance(value, list | tuple | dict):
        raise BadInput(f"{place}: {str(value)[:60]!r}: expected text")
    return str(value)

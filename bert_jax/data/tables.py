"""Tables of texts and labels: TSV, CSV, JSON lines and Parquet files, read by pyarrow, and data sets of the libraries
that corpus.py names; every value as text.

A TSV file has no quotes, as those of GLUE. A column is named by its header, or by its number from 0 in a file without
one.
"""

import json
import sys
from functools import partial
from pathlib import Path

from bert_jax.data import corpus
from bert_jax.errors import BadInput, one_line


def read(source: Path | str, columns: list[str], optional: str = "") -> list[tuple[str, list]]:
    """Returns (place, values of the columns) of each row of a file or a data set; the place is the file and line, in a
    .csv or .parquet file or a data set the row, for messages.

    A value is text, '' for null; a list stays a list. optional: one of the columns, that of the label, in which a null
    is None, and which the source may lack. Raises BadInput, which names the file and the column or line.
    """
    library = corpus.library_of(str(source))
    found, first = (library.table(source, columns), 0) if library else read_file(source, columns)
    if missing := [name for name in columns if name not in (*found, optional)]:
        raise BadInput(f"{source}: no column {missing[0]!r}; it has {', '.join(found)}")
    found.setdefault(optional, [None] * max(map(len, found.values())))
    values = ([plain(x, None if n == optional else "") for x in found[n]] for n in columns)
    rows, mark = zip(*values, strict=True), ":" if first else ", row "
    return [(f"{source}{mark}{n}", [*row]) for n, row in enumerate(rows, first or 1)]


def read_file(path: Path, columns: list[str]) -> tuple[dict[str, list], int]:
    """Returns the values of the columns of a file, and the line of its first row; 0 if a row may have several lines."""
    import pyarrow
    from pyarrow import parquet

    kind = path.suffixes[-2:][0] if path.suffix in (".gz", ".bz2", ".zst") else path.suffix
    is_numbered = all(map(str.isdecimal, columns))
    try:
        if kind in (".json", ".jsonl"):
            return read_json(path), 1
        reader = parquet.read_table if kind == ".parquet" else partial(read_csv, kind, columns)
        table = reader(path)
    except (pyarrow.ArrowException, AttributeError, OSError, TypeError, ValueError) as error:
        raise BadInput(f"{path}: cannot be read as a table ({one_line(error, 300)})") from None
    names = (name.removeprefix("f") if is_numbered else name for name in table.column_names)
    # Of two columns with the same name, the last one counts.
    found = {name: table.column(number).to_pylist() for number, name in enumerate(names)}
    return found, 0 if kind in (".csv", ".parquet") else 1 if is_numbered else 2


def read_json(path: Path) -> dict[str, list]:
    """Returns the values of all columns of a file with a JSON object a line; None where a line lacks one."""
    import pyarrow

    rows = []
    with pyarrow.input_stream(str(path), compression="detect") as file:
        for number, line in enumerate(file.read().split(b"\n"), 1):
            try:
                rows += [dict(json.loads(line))] if line.strip() else []
            except (TypeError, ValueError) as error:
                raise BadInput(f"{path}:{number}: not a JSON object ({one_line(error)})") from None
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def read_csv(kind: str, columns: list[str], path: Path):
    """Returns a pyarrow.Table of texts of a file with columns between tabs, or commas if the kind is .csv.

    It has no header if the columns are numbers. Skips up to one in a hundred rows with another number of columns, which
    files of GLUE to train on have, and prints how many. Raises ValueError for more, and for any in a file without the
    last of the columns, that of the label: its predictions have the numbers of its rows.
    """
    import pyarrow
    from pyarrow import csv

    skipped, is_csv, is_numbered = [], kind == ".csv", all(map(str.isdecimal, columns))
    parsing = csv.ParseOptions(
        delimiter="," if is_csv else "\t",
        quote_char=is_csv and '"',
        newlines_in_values=is_csv,
        ignore_empty_lines=False,
        invalid_row_handler=lambda row: skipped.append(row.text) or "skip",
    )
    size = min(max(1 << 20, path.stat().st_size), 2**31 - 1)  # a row may be as long as the file
    reading = csv.ReadOptions(autogenerate_column_names=is_numbered, block_size=size)
    types = {f"f{name}" if is_numbered else name: pyarrow.string() for name in columns}
    table = csv.read_csv(path, reading, parsing, csv.ConvertOptions(column_types=types))
    if len(skipped) > ([*types][-1] in table.column_names) * len(table) / 100:
        raise ValueError(f"{len(skipped)} rows with other numbers of columns: {skipped[0]}")
    if skipped:
        print(f"{path}: skipped {len(skipped)} rows with other columns", file=sys.stderr)
    return table


def plain(value, null: str | None = "") -> str | list[str] | None:
    """Returns a value as text, a list as a list of texts. null: what stands for None."""
    if isinstance(value, list):
        return [*map(plain, value)]
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return null if value is None else str(value)

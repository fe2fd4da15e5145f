"""Tables of texts and labels: TSV, CSV, JSON lines and Parquet files, read by pyarrow, and data sets of the libraries
that corpus.py names; every value as text.

A TSV file has no quotes, as those of GLUE. A column is named by its header, or by its number from 0 in a file without
one.
"""

from pathlib import Path

from bert_jax.data import corpus
from bert_jax.errors import BadInput, one_line

COMPRESSED = (".gz", ".bz2", ".zst")
JSON = (".json", ".jsonl")


def read(source: Path | str, columns: list[str], optional: str = "") -> list[tuple[str, list]]:
    """Returns (place, values of the columns) of each row of a file or a data set; the place is its line, for messages.

    A value is text, '' for null; a list stays a list. optional: one of the columns, that of the label, in which a null
    is None, and which the source may lack. Raises BadInput, which names the file and the column or line.
    """
    library = corpus.library_of(str(source))
    found, first = (library.table(source, columns), 0) if library else read_file(source, columns)
    if missing := [name for name in columns if name not in (*found, optional)]:
        raise BadInput(f"{source}: no column {missing[0]!r}; it has {', '.join(found)}")
    count = max(map(len, found.values()))

    def texts(name: str) -> list:
        values = found.get(name, [None] * count)
        return [None if x is None and name == optional else plain(x) for x in values]

    rows = zip(*map(texts, columns), strict=True)
    return [(f"{source}:{line}", list(row)) for line, row in enumerate(rows, first)]


def read_file(path: Path, columns: list[str]) -> tuple[dict[str, list], int]:
    """Returns the values of the columns of a file, and the line of its first row."""
    import pyarrow

    kind = path.with_suffix("").suffix if path.suffix in COMPRESSED else path.suffix
    is_numbered = all(name.isdecimal() for name in columns)
    try:
        table = open_table(path, kind, columns, is_numbered)
    except (pyarrow.ArrowException, OSError) as error:
        raise BadInput(f"{path}: cannot be read as a table ({one_line(error, 300)})") from None
    first = 1 if is_numbered or kind in JSON else 2  # the line after the header
    return {name: table[name].to_pylist() for name in table.column_names}, first


def open_table(path: Path, kind: str, columns: list[str], is_numbered: bool):
    """Returns a pyarrow.Table of a file. kind: the suffix of its format. is_numbered: the file has no header."""
    import pyarrow
    from pyarrow import csv, json, parquet

    if kind == ".parquet":
        return parquet.read_table(path)
    if kind in JSON:
        return json.read_json(path)
    is_csv = kind == ".csv"
    mark = "," if is_csv else "\t"
    parsing = csv.ParseOptions(delimiter=mark, quote_char=is_csv and '"', newlines_in_values=is_csv)
    reading = csv.ReadOptions(autogenerate_column_names=is_numbered)
    names = {f"f{name}" if is_numbered else name: name for name in columns}
    converting = csv.ConvertOptions(column_types=dict.fromkeys(names, pyarrow.string()))
    table = csv.read_csv(path, reading, parsing, converting)
    return table.rename_columns([names.get(name, name) for name in table.column_names])


def plain(value) -> str | list[str]:
    """Returns a value as text, a list as a list of texts."""
    if isinstance(value, list):
        return [*map(plain, value)]
    if isinstance(value, bytes):
        return value.decode()
    return "" if value is None else str(value)

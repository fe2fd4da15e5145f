"""Tables of texts and labels: TSV, CSV, JSON lines and Parquet files, read by pyarrow; every value as text.

A TSV file has no quotes, as those of GLUE. A column is named by its header, or by its number from 0 in a file without
one.
"""

from pathlib import Path

from bert_jax.errors import BadInput, one_line

COMPRESSED = (".gz", ".bz2", ".zst")
JSON = (".json", ".jsonl")


def read(path: Path, columns: list[str], optional: str = "") -> list[tuple[str, list]]:
    """Returns (place, values of the columns) of each row of a file; the place is the file and line, for messages.

    A value is text, '' for null; a list of a JSON or Parquet file stays a list. optional: one of the columns, whose
    values are None if the file lacks it. Raises BadInput, which names the file and the column or line.
    """
    import pyarrow

    kind = path.with_suffix("").suffix if path.suffix in COMPRESSED else path.suffix
    is_numbered = all(name.isdecimal() for name in columns)
    try:
        table = open_table(path, kind, columns, is_numbered)
    except (pyarrow.ArrowException, OSError) as error:
        raise BadInput(f"{path}: cannot be read as a table ({one_line(error, 300)})") from None
    names = table.column_names
    if missing := [name for name in columns if name not in (*names, optional)]:
        raise BadInput(f"{path}: no column {missing[0]!r}; it has {', '.join(names)}")

    def values(name: str) -> list:
        return [*map(plain, table[name].to_pylist())] if name in names else [None] * len(table)

    first = 1 if is_numbered or kind in JSON else 2  # the line after the header
    rows = zip(*map(values, columns), strict=True)
    return [(f"{path}:{line}", list(row)) for line, row in enumerate(rows, first)]


def open_table(path: Path, kind: str, columns: list[str], is_numbered: bool):
    """Returns a pyarrow.Table of a file. kind: the suffix of its format. is_numbered: the file has no header."""
    import pyarrow
    from pyarrow import csv, json, parquet

    if kind == ".parquet":
        return parquet.read_table(path)
    if kind in JSON:
        return json.read_json(path)
    is_csv = kind == ".csv"
    parsing = csv.ParseOptions(
        delimiter="," if is_csv else "\t",
        quote_char=is_csv and '"',
        newlines_in_values=is_csv,
    )
    reading = csv.ReadOptions(autogenerate_column_names=is_numbered)
    names = {f"f{name}" if is_numbered else name: name for name in columns}
    converting = csv.ConvertOptions(column_types=dict.fromkeys(names, pyarrow.string()))
    table = csv.read_csv(path, reading, parsing, converting)
    return table.rename_columns([names.get(name, name) for name in table.column_names])


def plain(value) -> str | list[str]:
    """Returns a value as text, a list as a list of texts."""
    if isinstance(value, list):
        return [*map(plain, value)]
    return "" if value is None else str(value)

"""Sentences of files of columns in the CoNLL format (doi:10.3115/1119176.1195).

A line has a word and its label, in columns between tabs or else blanks; empty lines and lines that begin with
-DOCSTART- separate sentences. Left out are comments, which begin with # and have another number of columns than words,
and of CoNLL-U, whose words are in the second of ten columns, the lines for several words or for none, such as 1-2 and
1.1.
"""

import re
from pathlib import Path

from bert_jax.data.sources import tables
from bert_jax.errors import BadInput
from bert_jax.tasks.supervised.examples import Example

BLANKS = " \t"
CONLLU = 10  # its columns


def load(config, path) -> list[Example]:
    """Reads the sentences of a file. The label of a sentence is a list of Example, its words; None if its first word
    has none."""
    if not isinstance(path, Path):
        raise BadInput(f"config.task.data={config.task.data}: expected a directory of files")
    if tables.suffix_of(path) not in ("", ".tsv"):
        raise BadInput(f"{path}: expected columns of words and labels, without a header")
    columns = config.task.columns
    lines = tables.read_lines(path)
    words = (line for line in lines if line.strip(BLANKS) and line[0] not in "#-")
    first = next(words, "")
    is_tabbed = "\t" in first.strip(BLANKS)
    size = len(split_columns(first, is_tabbed))
    sentences = [[]]
    for number, line in enumerate(lines, 1):
        row = split_columns(line, is_tabbed)
        if not row:
            sentences.append([])
        elif not is_comment(columns, row, size):
            sentences[-1].append((f"{path}:{number}", row))
    return [read_sentence(columns, rows) for rows in sentences if rows]


def split_columns(line: str, is_tabbed: bool) -> list[str]:
    """Returns the columns of a line, between tabs or else blanks; [] if it separates sentences."""
    text = line.strip(BLANKS)
    if not text or line.startswith("-DOCSTART-"):
        return []
    if is_tabbed:
        return line.rstrip(BLANKS).split("\t")
    return re.split("[ \t]+", text)


def is_comment(columns: tuple, row: list[str], size: int) -> bool:
    """Returns whether a row is no word: a comment, or of CoNLL-U for several words or none.

    columns: config.task.columns.
    size: the number of columns of words.
    """
    if row[0].startswith("#"):
        return len(row) != size > 0
    is_conllu = len(row) == CONLLU and columns[0] == 1
    return is_conllu and bool(re.fullmatch(r"\d+[-.]\d+", row[0]))


def read_sentence(columns: tuple, rows: tables.Rows) -> Example:
    """Returns the sentence of the rows of its words, which have no labels if there is one column."""
    word_column, label_column = columns
    first_place, first_row = rows[0]
    size = len(first_row)
    if not {*columns} <= {*range(-size, size)}:
        hint = f"too few for config.task.columns={columns}"
        raise BadInput(f"{first_place}: {size} columns, {hint}")
    words = []
    for location, row in rows:
        if len(row) != size:
            raise BadInput(f"{location}: {len(row)} columns, expected {size} as above")
        words.append(Example(location, [row[word_column]], row[label_column]))
    forms = [word.texts[0] for word in words]
    return Example(first_place, forms, words if size > 1 else None)

"""A table as text, of models or of groups."""

KINDS = {str: "<", int: ">,d", float: ">.4f"}  # how values are shown


def lines(rows: list[dict]) -> list[str]:
    """Returns the lines of a table: the names of the columns, and for each row its texts and numbers, and notes.

    rows: {column: text or number}, all with the same columns. Bools are in notes: held_out, whether
        the text was held out from the model of a row; is_exact, whether its tokens spell the text.
    """
    columns = []
    for name, value in rows[0].items():
        if kind := KINDS.get(type(value)):
            values = [row[name] for row in rows]
            cells = [name, *(f"{value:{kind}}" for value in values)]
            width = max(map(len, cells))
            columns.append([f"{cell:{kind[0]}{width}}" for cell in cells])
    result = [*map("  ".join, zip(*columns, strict=True))]
    for number, row in enumerate(rows, 1):
        if not row.get("held_out", True):
            result[number] += "  may have been trained on this text"
        if not row.get("is_exact", True):
            result[number] += "  its tokens do not spell all of the text"
    return result

"""Prints docs/config.md: every key of configs/base.py with its default and its comment.

python docs/make_config.py > docs/config.md
"""

import ast
import io
import tokenize
from pathlib import Path

BASE = Path(__file__).parents[1] / "configs/base.py"
HEAD = """# Config keys

Made from `configs/base.py` by `python docs/make_config.py > docs/config.md`. Set a key in a config file, or on the
command line by `--config.KEY=VALUE`.

| key | default | meaning |
| --- | --- | --- |"""


def comments(source: str) -> dict[int, str]:
    """Returns {line: the text of the comment on it}."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {
        token.start[0]: token.string.lstrip("# ")
        for token in tokens
        if token.type == tokenize.COMMENT
    }


def meaning(node: ast.stmt, notes: dict[int, str], lines: list[str]) -> str:
    """Returns the comments beside a statement, or else those on the lines above it."""
    beside = [notes[line] for line in range(node.lineno, node.end_lineno + 1) if line in notes]
    first = node.lineno
    while not beside and lines[first - 2].lstrip().startswith("#"):
        first -= 1
    return " ".join(beside or [notes[line] for line in range(first, node.lineno)])


def rows(source: str):
    """Yields (key, default, meaning) of every key, in the order of the file."""
    notes, lines = comments(source), source.splitlines()
    phase, get_config = (
        node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)
    )
    for node in get_config.body:
        if not isinstance(node, ast.Assign) or not ast.unparse(node.targets[0]).startswith(
            "config."
        ):
            continue
        key, value = ast.unparse(node.targets[0]).removeprefix("config."), ast.unparse(node.value)
        if key == "phases":
            for part in phase.body[-1].value.args[0].keywords:
                yield f"phases.NAME.{part.arg}", "", notes.get(part.value.lineno, "")
        elif value != "ConfigDict()":
            yield key, value, meaning(node, notes, lines)


def page() -> str:
    table = [
        f"| `{key}` | {default and f'`{default}`'} | {text} |"
        for key, default, text in rows(BASE.read_text())
    ]
    return "\n".join([HEAD, *table]) + "\n"


if __name__ == "__main__":
    print(page(), end="")

"""Prints docs/config.md: every key of configs/base.py and of what a config names, with its comment.

python docs/make_config.py > docs/config.md
"""

import ast
import io
import tokenize
from pathlib import Path

from bert_jax.registry import GROUPS, find_module, registered

ROOT = Path(__file__).parents[1]
HEAD = """# Config keys

Made by `python docs/make_config.py > docs/config.md` from the files that define the keys. Set a key in a config file,
or on the command line by `--config.KEY=VALUE`.

`--config.task.name=X` changes the task, and the keys of `task` and of the phases become those of X. A value that
differs from its old default is kept if X has a key of this name and type; all others take the defaults of X. The same
holds for `model.name`, `objective.name` and `optimizer.name`, and in a config file for `base.use(config, task="X")`.
"""
TABLE = """
## {title}

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


def shared_keys(source: str):
    """Yields (key, default, meaning) of every key of base.py, in the order of the file."""
    notes, lines = comments(source), source.splitlines()
    functions = {node.name: node for node in ast.parse(source).body if hasattr(node, "name")}
    arguments = functions["get_config"].args
    names = {
        arg.arg: ast.unparse(default)
        for arg, default in zip(arguments.args, arguments.defaults, strict=True)
    }
    for node in functions["get_config"].body:
        if not isinstance(node, ast.Assign) or "config." not in ast.unparse(node.targets[0]):
            continue
        key, value = ast.unparse(node.targets[0]).removeprefix("config."), ast.unparse(node.value)
        if key == "phases":
            for part in functions["phase"].body[-2].value.keywords:
                yield f"phases.NAME.{part.arg}", "", notes.get(part.value.lineno, "")
        elif not value.startswith("ConfigDict("):
            yield key, names.get(value, value), meaning(node, notes, lines)


def own_keys(path: Path, group: str):
    """Yields (key, default, meaning) of the DEFAULTS and PHASE_DEFAULTS of a file."""
    for name, prefix in (("DEFAULTS", group), ("PHASE_DEFAULTS", "phases.NAME")):
        found = {key: rest for key, *rest in items(path, name)}  # the last default of a key
        for key, (default, text) in found.items():
            yield f"{prefix}.{key}", default, text


def items(path: Path, name: str):
    """Yields (key, default, meaning) of the dict `name` of a file, and of the dicts of others in it."""
    source = path.read_text()
    notes, lines, body = comments(source), source.splitlines(), ast.parse(source).body
    values = [
        node.value
        for node in body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name
    ]
    for value in values:
        if isinstance(value, ast.Attribute):  # NAME = module.NAME
            yield from items(imported(body, value), value.attr)
            continue
        for key, default in zip(value.keys, value.values, strict=True):
            if key:
                yield key.value, ast.unparse(default), meaning(default, notes, lines)
            elif isinstance(default, ast.Name):  # **NAME
                yield from items(path, default.id)
            else:  # **module.NAME
                yield from items(imported(body, default), default.attr)


def imported(body: list[ast.stmt], name: ast.Attribute) -> Path:
    """Returns the file of the module in `module.NAME`, by the import of the module."""
    package = next(
        node.module
        for node in body
        if isinstance(node, ast.ImportFrom) and name.value.id in [each.name for each in node.names]
    )
    return ROOT.joinpath(*package.split("."), f"{name.value.id}.py")


def sections():
    """Yields (title, keys) of base.py and of every file of GROUPS that has keys."""
    yield "Keys of all runs", shared_keys((ROOT / "configs/base.py").read_text())
    for group in GROUPS:
        for name in sorted(registered(group)):
            path = Path(find_module(group, name).__file__)
            if keys := list(own_keys(path, group)):
                yield f"Keys of {group}.name={name}", keys


def page() -> str:
    """Returns the page; a key that an earlier section has with the same default and meaning is only named."""
    lines, described = [HEAD.rstrip()], set()
    for title, keys in sections():
        rows = [
            (key, f"| `{key}` | {default and f'`{default}`'} | {text} |")
            for key, default, text in keys
        ]
        again = ", ".join(f"`{key}`" for key, row in rows if row in described)
        new = [row for _, row in rows if row not in described]
        lines += [TABLE.format(title=title), *new] if new else [f"\n{title}: {again}, as above."]
        lines += [f"| {again} | | as above |"] if new and again else []
        described |= {*new}
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")

"""The source `pydocs`: text that every installation has, docstrings and chapters of the language reference."""

import ast
import importlib.util
import re
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path

# This project's dependencies, and Keras, which TensorFlow installs; documents are in this order.
PACKAGES = """
    jax flax optax orbax ml_collections numpy tensorflow keras tokenizers tqdm tensorboardX
""".split()
# Directories with few docstrings, or with copies of other packages.
SKIPPED = "test tests testing site-packages __pycache__ _vendor idlelib lib2to3 turtledemo".split()
MIN_CHARACTERS = 300  # characters; shorter docstrings are skipped
GROUP = 100  # files per task


def pydocs_files() -> list[list[Path]]:
    """Returns the Python files of the standard library and of PACKAGES, in groups."""
    roots = [Path(sysconfig.get_path("stdlib"))]
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)  # imports nothing for a top-level name
        if spec and spec.submodule_search_locations:
            roots += map(Path, spec.submodule_search_locations)
    paths = [path for root in roots for path in python_files(root)]
    return [paths[first : first + GROUP] for first in range(0, len(paths), GROUP)]


def python_files(folder: Path) -> Iterator[Path]:
    """Yields the Python files of a directory tree in sorted order, without tests."""
    for path in sorted(folder.iterdir()):
        if path.is_dir() and path.name not in SKIPPED and path.name.isidentifier():
            yield from python_files(path)
        elif path.suffix == ".py" and not path.name.endswith("_test.py"):
            yield path


def pydocs_text(paths: list[Path]) -> bytes:
    """Returns the documents of Python files as text: one paragraph per line, a blank line after each document."""
    documents = []
    for path in paths:
        try:
            texts = docstrings(path.read_bytes(), is_topics=path.match("pydoc_data/topics.py"))
        except (OSError, SyntaxError, ValueError, RecursionError):
            continue  # not valid for this version of Python
        for text in texts:
            document = "\n".join(paragraphs(text))
            if len(document) >= MIN_CHARACTERS:
                documents.append(f"{document}\n\n")
    # An escape in a docstring can be a lone surrogate, which UTF-8 cannot encode.
    return "".join(documents).encode(errors="ignore")


def docstrings(source: bytes, is_topics: bool) -> list[str]:
    """Returns the docstrings of a module and of its classes and functions.

    is_topics: for pydoc's topics.py, returns its entries instead, the chapters of the language reference.
    """
    if b'"""' not in source and b"'''" not in source:
        return []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escape sequences in other packages
        tree = ast.parse(source)
    if is_topics:
        assignment = next(node for node in tree.body if isinstance(node, ast.Assign))
        return list(ast.literal_eval(assignment.value).values())
    types = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    texts = (ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, types))
    return [text for text in texts if text]


def paragraphs(text: str) -> list[str]:
    """Returns the paragraphs of a docstring, one line each, without interactive examples."""
    lines = []
    for part in re.split(r"\n[ \t]*\n", text):
        words = part.split()
        if words and ">>>" not in part:
            lines.append(" ".join(words))
    return lines

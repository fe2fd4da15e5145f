"""`pydocs`: the prose that every installation carries, docstrings and the chapters of the language reference."""

import ast
import importlib.util
import re
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path

# This project's dependencies, and Keras, which comes with TensorFlow; documents are in this order.
PACKAGES = tuple(
    "jax flax optax orbax ml_collections numpy tensorflow keras tokenizers tqdm tensorboardX".split()
)
# Folders whose docstrings are few, or copies of other packages'.
SKIPPED = frozenset(
    "test tests testing site-packages __pycache__ _vendor idlelib lib2to3 turtledemo".split()
)
LEAST = 300  # characters; shorter docstrings are left out
GROUP = 100  # files that are read at a time


def pydocs_files() -> list[list[Path]]:
    """Python files of the standard library and of PACKAGES, in groups."""
    roots = [Path(sysconfig.get_path("stdlib"))]
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)  # of a top-level name: imports nothing
        roots += map(Path, (spec.submodule_search_locations or []) if spec else [])
    paths = [path for root in roots for path in python_files(root)]
    return [paths[first : first + GROUP] for first in range(0, len(paths), GROUP)]


def python_files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.is_dir() and path.name not in SKIPPED and path.name.isidentifier():
            yield from python_files(path)
        elif path.suffix == ".py" and not path.name.endswith("_test.py"):
            yield path


def pydocs_text(paths: list[Path]) -> bytes:
    """The documents of some Python files: a paragraph a line, a blank line after each document."""
    documents = []
    for path in paths:
        try:
            found = docstrings(path.read_bytes(), is_topics=path.match("pydoc_data/topics.py"))
        except (OSError, SyntaxError, ValueError, RecursionError):
            continue  # a file that this Python cannot read
        documents += ["\n".join(paragraphs(text)) for text in found]
    documents = (document for document in documents if len(document) >= LEAST)
    # A docstring can spell half a surrogate pair, which no encoding has.
    return "".join(f"{document}\n\n" for document in documents).encode(errors="ignore")


def docstrings(source: bytes, is_topics: bool) -> list[str]:
    """Of the module and of all its classes and functions; of pydoc's help texts the entries, which are the chapters of
    the language reference."""
    if b'"""' not in source and b"'''" not in source:
        return []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # other people's escape sequences
        tree = ast.parse(source)
    if is_topics:
        assignment = next(node for node in tree.body if isinstance(node, ast.Assign))
        return list(ast.literal_eval(assignment.value).values())
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    nodes = (node for node in ast.walk(tree) if isinstance(node, kinds))
    return [text for node in nodes if (text := ast.get_docstring(node))]


PARAGRAPH_BREAK = re.compile(r"\n[ \t]*\n")


def paragraphs(text: str) -> list[str]:
    """The paragraphs of a docstring, a line each; examples of the interpreter are left out."""
    lines = (" ".join(part.split()) for part in PARAGRAPH_BREAK.split(text) if ">>>" not in part)
    return [line for line in lines if line]

"""Random damage of bytes, JSON documents and files, drawn from hypothesis."""

import copy
import json
import re
import shutil
from pathlib import Path

from hypothesis import strategies as st

NUMBERS = [0, -1, 1, 3, 2**31, 2**64, 10**400, 0.5, -0.0, 1e308, float("inf"), float("nan"), True]
TEXTS = ["", " ", "x", "\0", "\ud800", "a\nb", "../x", "/", "~", "é" * 300, "1", "[MASK]", "%s"]
TEXTS += ["{0}", "-", "--help", "auto", "cafe\u0301", "\U0001f600"]
VALUES = [*NUMBERS, *TEXTS, None, [], {}, [1], [None], {"a": 1}, ["x", "y"], {"": {}}]
RAW = [b"\0", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\n", b"\r\n", b"{", b'"', b"\\ud800"]
RAW += [b"[" * 100_000, b"9" * 5000, b"1e999", b"NaN", b"x" * 70_000, b"<doc ", b"</doc>"]


def changed_bytes(draw, content: bytes) -> bytes:
    """Returns the content after one to three changes, such as a flipped bit, a truncation or another number."""
    for _ in range(draw(st.integers(1, 3))):
        content = changed_once(draw, content)
    return content


def changed_once(draw, content: bytes) -> bytes:
    start, end = sorted(draw(st.integers(0, len(content))) for _ in range(2))
    kind = draw(st.sampled_from("flip cut remove insert number any".split()))
    if kind == "flip" and start < len(content):
        byte = content[start] ^ 1 << draw(st.integers(0, 7))
        return content[:start] + bytes([byte]) + content[start + 1 :]
    if kind == "cut":
        return content[:start]
    if kind == "remove":
        return content[:start] + content[end:]
    if kind == "number" and (matches := list(re.finditer(rb"-?\d+(\.\d+)?", content[:100_000]))):
        first, last = draw(st.sampled_from(matches)).span()
        value = json.dumps(draw(st.sampled_from(NUMBERS))).encode()
        return content[:first] + value + content[last:]
    if kind == "any":
        return draw(st.binary(max_size=200))
    return content[:start] + draw(st.sampled_from(RAW)) + content[start:]


def changed_json(draw, document):
    """Returns the document with one or two values removed, replaced or added."""
    document = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 2))):
        if nodes := list(containers(document)):
            change(draw, draw(st.sampled_from(nodes)))
    return document


def containers(value):
    """Yields every dict and list of a document."""
    if isinstance(value, dict | list):
        yield value
        for part in value.values() if isinstance(value, dict) else value:
            yield from containers(part)


def change(draw, container) -> None:
    """Removes, replaces or adds a value of a dict or list."""
    keys = list(container) if isinstance(container, dict) else list(range(len(container)))
    kind = draw(st.sampled_from(["replace", "replace", "remove", "add"]))
    value = copy.deepcopy(draw(st.sampled_from(VALUES)))
    if keys and kind == "remove":
        del container[draw(st.sampled_from(keys))]
    elif keys and kind == "replace":
        container[draw(st.sampled_from(keys))] = value
    elif isinstance(container, list):
        container.append(value)
    else:
        container[draw(st.sampled_from(["new", "", "a.b", "path", "file", "\ud800"]))] = value


def encode(draw, document) -> bytes:
    """Returns JSON, sometimes with lone surrogates."""
    return json.dumps(document, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")


def copy_damaged(draw, source: Path, directory: Path) -> None:
    """Copies a directory and damages one or two of its files."""
    shutil.copytree(source, directory)
    chosen = st.lists(st.sampled_from(files(directory)), min_size=1, max_size=2, unique=True)
    for path in draw(chosen):
        change_file(draw, path)


def files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file() and not path.is_symlink())


def change_file(draw, path: Path) -> None:
    """Changes the bytes of a file, removes it, or replaces it by a directory or a link. A link keeps the bytes."""
    content = path.read_bytes()
    kinds = ["bytes"] * 6 + ["json"] * 4 * (path.suffix == ".json")
    kinds += ["missing", "link"]
    # A person brings the other files. An index that is no file is an error of the system, with exit code 1.
    kinds += ["directory", "loop"] * (path.parent.name != "index")
    kind = draw(st.sampled_from(kinds))
    if kind == "json":
        path.write_bytes(encode(draw, changed_json(draw, json.loads(content))))
    elif kind == "bytes":
        path.write_bytes(changed_bytes(draw, content))
    else:
        path.unlink()
    if kind == "directory":
        path.mkdir()
    elif kind == "loop":
        path.symlink_to(path.name)
    elif kind == "link":
        path.with_name(f"linked-{path.name}").write_bytes(content)
        path.symlink_to(f"linked-{path.name}")

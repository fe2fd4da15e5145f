"""What can happen to bytes, to a JSON document, and to a file, drawn from hypothesis."""

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
    """The content after one to three of: a bit flipped, cut, a part removed or added, a number changed."""
    for _ in range(draw(st.integers(1, 3))):
        content = changed_once(draw, content)
    return content


def changed_once(draw, content: bytes) -> bytes:
    one, two = sorted(draw(st.integers(0, len(content))) for _ in range(2))
    kind = draw(st.sampled_from("flip cut remove insert number any".split()))
    if kind == "flip" and one < len(content):
        byte = content[one] ^ 1 << draw(st.integers(0, 7))
        return content[:one] + bytes([byte]) + content[one + 1 :]
    if kind == "cut":
        return content[:one]
    if kind == "remove":
        return content[:one] + content[two:]
    if kind == "number" and (found := list(re.finditer(rb"-?\d+(\.\d+)?", content[:100_000]))):
        first, last = draw(st.sampled_from(found)).span()
        value = json.dumps(draw(st.sampled_from(NUMBERS))).encode()
        return content[:first] + value + content[last:]
    if kind == "any":
        return draw(st.binary(max_size=200))
    return content[:one] + draw(st.sampled_from(RAW)) + content[one:]


def changed_json(draw, document):
    """The document with a value or two removed, replaced or added."""
    document = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 2))):
        if places := list(containers(document)):
            change(draw, draw(st.sampled_from(places)))
    return document


def containers(value):
    """Every dict and list of a document."""
    if isinstance(value, dict | list):
        yield value
        for part in value.values() if isinstance(value, dict) else value:
            yield from containers(part)


def change(draw, container) -> None:
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
    """As JSON, now and then with lone surrogates."""
    return json.dumps(document, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")


def damaged(draw, source: Path, place: Path) -> None:
    """Copies a directory and damages one or two of its files."""
    shutil.copytree(source, place)
    chosen = st.lists(st.sampled_from(files(place)), min_size=1, max_size=2, unique=True)
    for path in draw(chosen):
        change_file(draw, path)


def files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file() and not path.is_symlink())


def change_file(draw, path: Path) -> None:
    """Does something to a file. A link to the very bytes leaves them as they are."""
    content = path.read_bytes()
    kinds = ["bytes"] * 6 + ["json"] * 4 * (path.suffix == ".json")
    kind = draw(st.sampled_from([*kinds, "missing", "directory", "loop", "link"]))
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

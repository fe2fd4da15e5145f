"""What can happen to bytes, to a JSON document, and to a file, drawn from hypothesis."""

import copy
import json
import os
import re
from pathlib import Path

from hypothesis import strategies as st

NUMBERS = [0, -1, 1, 2, 3, 2**31, 2**32, 2**63, 2**64, 10**30, 10**400, -(2**63) - 1]
NUMBERS += [0.5, -0.0, 1e308, 5e-324, float("inf"), float("-inf"), float("nan"), True, False]
TEXTS = ["", " ", "x", "\0", "\ud800", "a\nb", "\u2028", "../x", "/", "~", "é" * 300, "NaN", "1"]
TEXTS += ["[MASK]", "%s", "{0}", "*", "-", "--help", "auto", "none", "cafe\u0301", "\U0001f600"]
VALUES = [*NUMBERS, *TEXTS, None, [], {}, [1], [None], {"a": 1}, ["x", "y"], [[1.5, 2]], {"": {}}]
RAW = [b"\0", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\n", b"\r\n", b"\n\n", b"{", b"}", b'"']
RAW += [b"[" * 100_000, b"9" * 5000, b"1e999", b"NaN", b"-", b"\\u0000", b"\\ud800", b"x" * 70_000]
RAW += ["\u2028".encode(), "é".encode(), "e\u0301".encode(), b"\x1a", b"\x0c", b"<doc ", b"</doc>"]


def changed_bytes(draw, content: bytes) -> bytes:
    """The content after one to three of: a bit flipped, cut, parts copied, removed, added, zeroed, a number changed."""
    for _ in range(draw(st.integers(1, 3))):
        content = changed_once(draw, content)
    return content


def changed_once(draw, content: bytes) -> bytes:
    size = len(content)
    one, two = sorted((draw(st.integers(0, size)), draw(st.integers(0, size))))
    kind = draw(st.sampled_from("flip cut tail copy remove insert zero number empty any".split()))
    if kind == "flip" and one < size:
        byte = content[one] ^ 1 << draw(st.integers(0, 7))
        return content[:one] + bytes([byte]) + content[one + 1 :]
    if kind == "cut":
        return content[:one]
    if kind == "tail":
        return content[one:]
    if kind == "copy":
        place = draw(st.integers(0, size))
        return content[:place] + content[one:two] + content[place:]
    if kind == "remove":
        return content[:one] + content[two:]
    if kind == "zero":
        return content[:one] + bytes(two - one) + content[two:]
    if kind == "number":
        return changed_number(draw, content)
    if kind == "empty":
        return b""
    if kind == "any":
        return draw(st.binary(max_size=200))
    return content[:one] + draw(st.sampled_from(RAW)) + content[one:]


def changed_number(draw, content: bytes) -> bytes:
    found = list(re.finditer(rb"-?\d+(\.\d+)?", content[:100_000]))
    if not found:
        return content
    match = draw(st.sampled_from(found))
    value = draw(st.sampled_from(NUMBERS))
    return content[: match.start()] + json.dumps(value).encode() + content[match.end() :]


def changed_json(draw, document):
    """The document with a few values removed, replaced, renamed, moved or added."""
    document = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 2))):
        places = list(containers(document))
        if not places:
            return document
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
    kind = draw(st.sampled_from(["replace", "replace", "replace", "remove", "add", "swap"]))
    if kind == "add" or not keys:
        value = copy.deepcopy(draw(st.sampled_from(VALUES)))
        if isinstance(container, list):
            container.append(value)
        else:
            container[draw(st.sampled_from(["new", "", "a.b", "path", "file", "\ud800"]))] = value
        return
    key = draw(st.sampled_from(keys))
    if kind == "remove":
        del container[key]
    elif kind == "swap":
        other = draw(st.sampled_from(keys))
        container[key], container[other] = container[other], container[key]
    else:
        container[key] = copy.deepcopy(draw(st.sampled_from(VALUES)))


def encode(draw, document) -> bytes:
    """As JSON; now and then not of UTF-8, or nested too deep."""
    plain = draw(st.booleans())
    text = json.dumps(document, ensure_ascii=plain, indent=draw(st.sampled_from([None, 1])))
    return text.encode("utf-8", "surrogatepass")


def change_file(draw, path: Path) -> str:
    """Does something to a file; says what. Some of it leaves its bytes as they are."""
    content = path.read_bytes()
    kinds = ["bytes"] * 6 + ["json"] * 4 * (path.suffix == ".json")
    kinds += ["missing", "directory", "loop", "nowhere", "null", "fifo", "link"]
    kind = draw(st.sampled_from(kinds))
    if kind == "json":
        content = encode(draw, changed_json(draw, json.loads(content)))
        path.write_bytes(content)
    elif kind == "bytes":
        path.write_bytes(changed_bytes(draw, content))
    else:
        replace_file(path, kind, content)
    return f"{kind} {path.name}"


def replace_file(path: Path, kind: str, content: bytes) -> None:
    path.unlink()
    if kind == "directory":
        path.mkdir()
    elif kind == "loop":
        path.symlink_to(path.name)
    elif kind == "nowhere":
        path.symlink_to("nowhere")
    elif kind == "null":
        path.symlink_to("/dev/null")
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "link":  # to the very bytes, within the same directory
        path.with_name(f"linked-{path.name}").write_bytes(content)
        path.symlink_to(f"linked-{path.name}")

"""Checksums: sizes and SHA-256 of the files in a manifest, and the SHA-256 of JSON values, which is among them."""

import hashlib
import json
import os
from pathlib import Path


def digest(path: Path) -> str:
    """Returns the SHA-256 of a file in hex."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def file_table(directory: Path) -> dict:
    """Returns {relative path: {bytes, sha256}} of all files under a directory."""
    table = {}
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            name = path.relative_to(directory).as_posix()
            table[name] = {"bytes": path.stat().st_size, "sha256": digest(path)}
    return table


def sealed(values: dict) -> dict:
    """Returns JSON values with the SHA-256 of all of them as `digest`. An intact file is equal to its own result."""
    others = {key: value for key, value in values.items() if key != "digest"}
    return others | {"digest": json_digest(others)}


def json_digest(values) -> str:
    """Returns the SHA-256 in hex of values as JSON with sorted keys."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def check_file(directory: Path, name: str, expected: dict, hashes: bool) -> str:
    """Says what is wrong with a file of a manifest, or ''. hashes: also compares its SHA-256."""
    path = directory / name
    # A manifest may be untrusted: files outside the directory are never read.
    if not is_inside(directory, name):
        return "is outside the directory"
    try:
        if not path.is_file():
            return "missing"
        size = path.stat().st_size
        if size != expected["bytes"]:
            return f"has {size} bytes, not {expected['bytes']} as in the manifest"
        if hashes and digest(path) != expected["sha256"]:
            return "altered since it was written (its SHA-256 differs from the manifest)"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    return ""


def stamp(path: Path) -> tuple[int, int] | None:
    """Returns (size, modification time) of a file, to detect changes; None if it cannot be read."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns


def is_inside(directory: Path, name: str) -> bool:
    """Returns whether a relative path stays inside the directory, also after following links."""
    path = Path(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name:
        return False
    # Unlike Path.resolve, os.path.realpath accepts a link to itself.
    target = os.path.realpath(directory / path)
    return Path(target).is_relative_to(os.path.realpath(directory))

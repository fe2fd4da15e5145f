"""Sizes, times and SHA-256 of the files that a manifest lists, and the SHA-256 of the manifest itself."""

import hashlib
import json
import os
from pathlib import Path


def digest(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def file_table(directory: Path) -> dict:
    """{name: {bytes, sha256}} of all files that are there."""
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    return {
        path.relative_to(directory).as_posix(): {
            "bytes": path.stat().st_size,
            "sha256": digest(path),
        }
        for path in files
    }


def manifest_text(manifest: dict) -> str:
    return json.dumps(manifest, indent=1, sort_keys=True) + "\n"


def manifest_digest(manifest: dict) -> str:
    """SHA-256, in hex, of all that a manifest says but its digest."""
    values = {key: value for key, value in manifest.items() if key != "digest"}
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def check_file(directory: Path, name: str, expected: dict, hashes: bool) -> str:
    """What is wrong with one file, or an empty text."""
    path = directory / name
    # Nothing outside of a store is read, whatever a manifest or a link in it says.
    if not inside(directory, name):
        return "lies outside of the directory"
    try:
        if not path.is_file():
            return "missing"
        size = path.stat().st_size
        if size != expected["bytes"]:
            return f"{size} bytes, {expected['bytes']} in the manifest"
        if hashes and digest(path) != expected["sha256"]:
            return "altered since it was written (SHA-256 differs from the manifest)"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    return ""


def stamp(path: Path) -> tuple[int, int] | None:
    """Size and time of a file, by which a change is noticed; None where it cannot be looked at."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns


def inside(directory: Path, name: str) -> bool:
    """Whether a name, links followed, stays within the directory."""
    path = Path(name)
    straight = not path.is_absolute() and ".." not in path.parts and "\0" not in name
    real = os.path.realpath  # unlike Path.resolve it takes a link that leads to itself
    return straight and Path(real(directory / path)).is_relative_to(real(directory))

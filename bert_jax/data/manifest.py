"""manifest.json of stores and saved batches: their properties, and the SHA-256 of every file and of itself.

A checkpoint has fingerprints of its arrays instead (checkpoints/reader.py): they are computed on the devices, before
Orbax writes its files.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from bert_jax.errors import BadInput
from bert_jax.storage import checksums

NAME = "manifest.json"


def write(directory: Path, manifest: dict, version: int) -> dict:
    """Adds format, files and digest to `manifest` and writes it; returns it. Call after all other files are written."""
    manifest = {"format": version, **manifest, "files": checksums.file_table(directory)}
    # The digest is that of the manifest as it will be read.
    manifest = checksums.sealed(json.loads(json.dumps(manifest)))
    (directory / NAME).write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n")
    return manifest


def read(directory: str | Path, version: int, key: str, hint: str) -> dict:
    """Reads a manifest of the format `version` that contains `key`.

    Raises BadInput if it is missing, unreadable, of another format or altered; `hint` says how to write a new one.
    """
    directory = Path(directory)
    path = directory / NAME
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        is_supported = manifest["format"] == version and key in manifest
        is_intact = manifest == checksums.sealed(manifest)
    except (FileNotFoundError, NotADirectoryError):
        raise BadInput(f"{directory}: there is no {NAME}; {hint}") from None
    except (KeyError, OSError, TypeError, ValueError, RecursionError) as error:
        raise BadInput(f"{path}: unreadable manifest ({error}); {hint}") from None
    if not is_supported:
        raise BadInput(f"{path}: not of format {version}, which this version requires; {hint}")
    if not is_intact:
        raise BadInput(f"{path}: its SHA-256 differs from its digest; restore it, or {hint}")
    return manifest


def check_files(directory: Path, manifest: dict, hashes: bool) -> Iterator[tuple[str, str]]:
    """Compares files with the manifest, sizes always and SHA-256 if `hashes`; yields (name, message) of each error."""
    for name, expected in manifest["files"].items():
        message = checksums.check_file(directory, name, expected, hashes)
        if message:
            yield name, message


def verify_files(directory: Path, manifest: dict, hashes: bool) -> None:
    """Raises BadInput for the first file that differs from the manifest."""
    for name, message in check_files(directory, manifest, hashes):
        hint = f"restore it, or delete {directory} and make it again"
        raise BadInput(f"{directory / name}: {message}; {hint}")

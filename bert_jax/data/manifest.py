"""manifest.json of stores and saved batches: what they are, and SHA-256 of every file and of itself."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

from bert_jax.errors import BadInput
from bert_jax.storage import checksums

NAME = "manifest.json"


def write(directory: Path, manifest: dict, version: int) -> dict:
    """Adds format, files and digest to `manifest` and writes it, the last file of a directory; returns it."""
    manifest = {"format": version, **manifest, "files": checksums.file_table(directory)}
    manifest = json.loads(json.dumps(manifest))  # what is read is what the digest is of
    manifest["digest"] = checksums.manifest_digest(manifest)
    (directory / NAME).write_text(checksums.manifest_text(manifest))
    return manifest


def read(directory: str | Path, version: int, key: str, hint: str) -> dict:
    """The manifest, as it was written, which has a `key`. Raises BadInput, which says what makes another one."""
    path = Path(directory) / NAME
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        is_whole = manifest["digest"] == checksums.manifest_digest(manifest)
        is_ours = manifest["format"] == version and key in manifest
    except (FileNotFoundError, NotADirectoryError):
        raise BadInput(f"{directory}: has no {NAME}; {hint}") from None
    except (KeyError, OSError, TypeError, ValueError, RecursionError) as error:
        raise BadInput(f"{path}: unreadable manifest ({error})") from None
    if not is_ours:
        raise BadInput(f"{path}: not of format {version}, which this version reads; {hint}")
    if not is_whole:
        raise BadInput(f"{path}: altered since it was written (SHA-256 differs from its digest)")
    return manifest


def check_files(directory: Path, manifest: dict, hashes: bool) -> Iterator[tuple[str, str]]:
    """Compares the files that a manifest names with it: sizes always, contents if `hashes`. Yields (name, what is
    wrong)."""
    for name, expected in manifest["files"].items():
        text = checksums.check_file(Path(directory), name, expected, hashes)
        if text:
            yield name, text


def refuse_altered(directory: Path, manifest: dict, hashes: bool) -> None:
    for name, text in check_files(directory, manifest, hashes):
        raise BadInput(f"{directory / name}: {text}")


def watch(directory: Path, manifest: dict) -> Callable[[], None]:
    """Returns a check that raises BadInput at the first file of the manifest, or the manifest itself, that has another
    size or time than now, or is gone; a stat a file."""
    seen = {name: checksums.stamp(directory / name) for name in (*manifest["files"], NAME)}

    def check() -> None:
        for name, before in seen.items():
            if checksums.stamp(directory / name) != before:
                raise BadInput(
                    f"{directory / name}: its size or time has changed while it was read"
                )

    return check

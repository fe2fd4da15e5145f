"""All that is wrong with a store: its manifest, its files, and what is in them."""

import contextlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

from bert_jax.data import download, integrity, packing, row_index
from bert_jax.data import store as stores
from bert_jax.data.store import Problem
from bert_jax.errors import BadInput
from bert_jax.storage import checksums, regular_files
from bert_jax.tokenizers import tokenizer as tokenizers

INDEX = "index"  # the directory of cached rows, which no manifest knows
LARGE = 100_000_000  # bytes of a store or file from which on progress is told
PARTS = {"manifest.json", "unigrams.npy", "tokenizer", *stores.SPLITS}  # of which a store has some


def verify(directory: Path | str, tell: Callable[[str], None]) -> dict:
    """{store, sound, problems: [{file, problem}], rebuilt: [file], files, bytes, seconds}; BadInput if it is no store.

    `rebuilt` are damaged files of cached rows, which the next run makes again by itself.
    """
    name, directory, start = directory, download.local(directory), time.monotonic()
    try:
        there = directory.is_dir() and any((directory / name).exists() for name in PARTS)
    except OSError as error:
        raise BadInput(f"--store {directory}: cannot be read ({error.strerror})") from None
    if not there:
        raise BadInput(f"--store {directory}: no token store")
    found = list(sizes(directory))
    quiet = sum(found) < LARGE
    problems = list(dict.fromkeys(check(directory, (lambda text: None) if quiet else tell)))
    rebuilt = {"rebuilt": damaged_indexes(directory)}
    return {"store": str(name)} | result(problems, found, start) | rebuilt


def result(problems: list[Problem], sizes: list[int], start: float) -> dict:
    """What is told of any directory; start: when this began, by time.monotonic."""
    return {
        "sound": not problems,
        "problems": [{"file": problem.file, "problem": problem.text} for problem in problems],
        "files": len(sizes),
        "bytes": sum(sizes),
        "seconds": time.monotonic() - start,
    }


def sizes(directory: Path) -> Iterator[int]:
    """Bytes of each file that is there."""
    for path in directory.rglob("*"):
        with contextlib.suppress(OSError):  # it has gone meanwhile
            if path.is_file():
                yield path.stat().st_size


def describe(values: dict) -> list[str]:
    """One line a problem, then a summary; of a workdir's values too."""
    lines = [f"{problem['file']}: {problem['problem']}" for problem in values["problems"]]
    lines += [f"{name}: damaged, will be built again" for name in values.get("rebuilt", [])]
    number = len(values["problems"])
    state = "sound" if values["sound"] else f"{number} problem{'s' * (number > 1)}"
    size = f"{values['files']} files of {values['bytes'] / 1e6:,.1f} MB"
    place = values.get("store") or values["workdir"]
    return [*lines, f"{place}: {state}, {size} in {values['seconds']:.1f} s"]


def check(directory: Path, tell: Callable[[str], None]) -> Iterator[Problem]:
    try:
        manifest = stores.read_manifest(directory)
    except BadInput as error:
        # Its hashes cannot be relied on any more; what the files hold can still be looked at.
        manifest = None
        yield Problem("manifest.json", str(error).partition(": ")[2])
    if manifest:
        yield from check_manifest(directory, manifest)
        yield from check_all_files(directory, manifest, tell)
    tokenizer = yield from open_tokenizer(directory)
    if manifest and tokenizer:
        yield from check_vocabulary(manifest, tokenizer)
    yield from integrity.check(directory, tokenizer, manifest, tell)


# --- Files ----------------------------------------------------------------------------------------


def check_manifest(directory: Path, manifest: dict) -> Iterator[Problem]:
    if (directory / "manifest.json").read_bytes() != checksums.manifest_text(manifest).encode():
        yield Problem("manifest.json", "not as it was written, though it says the same")


def check_all_files(directory: Path, manifest: dict, tell: Callable) -> Iterator[Problem]:
    """Files that are missing, cut, grown, altered or swapped, and those that the manifest does not know."""

    def announce(name: str) -> None:
        size = manifest["files"][name]["bytes"]
        if size > LARGE:
            tell(f"verify: {name}, {size / 1e9:.1f} GB")

    wrong = list(stores.check_files(directory, manifest, hashes=True, tell=announce))
    held = {problem.file: digest(directory, problem.file) for problem in wrong}
    for problem in wrong:
        other = owner(held.get(problem.file), problem.file, manifest["files"])
        text = f"{problem.text}; it holds what belongs in {other}" if other else problem.text
        yield Problem(problem.file, text)
    yield from surplus(directory, {*manifest["files"], "manifest.json"})


def digest(directory: Path, name: str) -> str | None:
    """SHA-256 of a file of the store, None where it cannot be read."""
    path = directory / name
    try:
        return (
            checksums.digest(path) if checksums.inside(directory, name) and path.is_file() else None
        )
    except OSError:
        return None


def surplus(directory: Path, names: set[str]) -> Iterator[Problem]:
    """What is neither one of the files `names` nor a directory of theirs; cached rows are let be."""
    folders = {str(folder) for name in names for folder in PurePosixPath(name).parents}
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory).as_posix()
        if name in names or path.parts[len(directory.parts)] == INDEX:
            continue
        if path.is_symlink() or not os.path.isdir(path):
            yield Problem(name, "surplus: not a file of this store")
        elif name not in folders and not os.access(path, os.R_OK | os.X_OK):
            yield Problem(name, "surplus: a directory that cannot be read")
        elif name not in folders and not any(path.iterdir()):
            yield Problem(name, "surplus: an empty directory")


def owner(digest: str | None, name: str, files: dict) -> str:
    """The other file that a manifest gives this SHA-256, or an empty text."""
    return next(
        (other for other in files if other != name and files[other]["sha256"] == digest), ""
    )


def damaged_indexes(directory: Path) -> list[str]:
    """Files of cached rows that cannot be used; those of other versions are not looked at, as by the stream."""
    damaged = []
    for path in sorted((directory / INDEX).glob(f"*-v{row_index.VERSION}-*")):
        split = path.name.partition("-")[0]
        if path.suffix == ".json" and not is_json(path):
            damaged.append(f"{INDEX}/{path.name}")
        if path.suffix == ".npy" and split in stores.SPLITS:
            tokens, _ = integrity.load(directory / split / "tokens.npy")
            usable = tokens is None or is_index(path, len(tokens))
            if not usable or not path.is_file() or not row_index.intact(path):
                damaged.append(f"{INDEX}/{path.name}")
    return damaged


def is_index(path: Path, tokens: int) -> bool:
    """Whether a file has rows of pairs or, by its name, says how they are packed."""
    packed = re.search(r"-packed(\d+)-epoch\d+\.npy$", path.name)
    kind = packing.kind_of(int(packed[1])) if packed else row_index.kind_of(tokens)
    return row_index.read(path, kind) is not None


def is_json(path: Path) -> bool:
    try:
        return isinstance(json.loads(regular_files.text(path)), dict)
    except (OSError, ValueError, RecursionError):
        return False


# --- Content --------------------------------------------------------------------------------------


def open_tokenizer(directory: Path) -> Iterator[Problem]:
    """Returns the tokenizer, or None after a problem."""
    try:
        return tokenizers.load(directory / "tokenizer")
    except BadInput as error:
        name, _, text = str(error).removeprefix(f"{directory}/").partition(": ")
        yield Problem(name, text)
    except Exception as error:  # the libraries that read vocabularies raise what they like
        yield Problem("tokenizer", f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")


def check_vocabulary(manifest: dict, tokenizer) -> Iterator[Problem]:
    if tokenizer.size != manifest["vocabulary"]:
        yield Problem(
            "tokenizer", f"{tokenizer.size} pieces, {manifest['vocabulary']} in the manifest"
        )
    if tokenizer.special != manifest["special"]:
        yield Problem(
            "tokenizer", f"special ids {tokenizer.special}, {manifest['special']} in the manifest"
        )

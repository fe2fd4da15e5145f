"""`verify`: checks the hashes of a store's files, or of a run's files and checkpoints. It is read-only."""

import os
from collections.abc import Iterator
from pathlib import Path

from bert_jax import cli
from bert_jax import config as configs
from bert_jax.checkpoints import reader
from bert_jax.data import download
from bert_jax.data import manifest as manifests
from bert_jax.data import store as stores
from bert_jax.errors import BadInput
from bert_jax.runs import metrics_file, workdir
from bert_jax.runs.workdir import Workdir
from bert_jax.tokenizers import tokenizer

OPTIONS = [
    cli.place("--store", "directory or address of a token store"),
    cli.place("--workdir", "directory or address of a run"),
    cli.AS_JSON,
]


def run(options, overrides) -> int:
    cli.refuse_overrides(overrides)
    if bool(options.store) == bool(options.workdir):
        raise BadInput("verify: expected either --store or --workdir")
    if options.store:
        name, problems = str(options.store), list(check_store(options.store))
    else:
        with workdir.opened(options.workdir) as run:
            name, problems = run.name, list(check_run(run))
    entries = [{"file": file, "problem": text} for file, text in problems]
    lines = [f"{file}: {text}" for file, text in problems]
    text = "\n".join([*lines, f"{name}: problems: {len(problems)}"])
    cli.show(options, {"valid": not problems, "problems": entries}, text)
    return 1 if problems else 0


def check_store(name: str | Path) -> Iterator[tuple[str, str]]:
    """Yields (file, problem) for missing and altered files, by the manifest. Raises BadInput if there is no store."""
    directory = download.local(name)
    if not os.path.isfile(directory / "manifest.json"):
        raise BadInput(f"--store {name}: not a token store (no manifest.json)")
    try:
        manifest = stores.read_manifest(directory)
    except BadInput as error:
        yield split_error(error, directory)
    else:
        yield from manifests.check_files(directory, manifest, hashes=True)


def check_run(run: Workdir) -> Iterator[tuple[str, str]]:
    """Yields (file, problem) for the files of a run. Raises BadInput if there is no run.

    Checks checkpoints by their fingerprints, config and tokenizer by their digests in run.json, and whether the other
    files can be read.
    """
    directory = run.directory
    if not os.path.isfile(directory / "run.json"):
        raise BadInput(f"--workdir {directory}: not a run (no run.json)")
    try:
        info = workdir.read_info(directory)
    except BadInput as error:
        yield split_error(error, directory)
        return
    checks = (
        ("config.json", "config", lambda path: configs.digest(workdir.read_json(path))),
        ("tokenizer", "tokenizer", lambda path: tokenizer.load(path).fingerprint),
        ("status.json", None, workdir.read_json),
        ("metrics.jsonl", None, metrics_file.lines),
    )
    for name, key, read in checks:
        try:
            value = read(directory / name)
        except BadInput as error:
            yield split_error(error, directory)
        else:
            if key and value != info.get(key):
                yield name, "altered: its digest in run.json differs"
    steps = reader.problems(run.checkpoints, str(info.get("run", "")))
    yield from ((f"checkpoints/{step}", reason) for step, reason in steps.items() if reason)


def split_error(error: BadInput, directory: Path) -> tuple[str, str]:
    """Returns the file that an error names, and the problem."""
    name, _, text = str(error).removeprefix(f"{directory}/").partition(": ")
    return name, text

"""`verify`: checks the hashes of a store's files, or of a run's files and checkpoints. It is read-only."""

import contextlib
import os
from pathlib import Path

from bert_jax import cli
from bert_jax.checkpoints import reader
from bert_jax.data import download
from bert_jax.data import manifest as manifests
from bert_jax.data import store as stores
from bert_jax.errors import BadInput
from bert_jax.runs import continuation, metrics_file, workdir
from bert_jax.runs.workdir import Workdir
from bert_jax.storage import json_file
from bert_jax.tokenizers import tokenizer

OPTIONS = [
    cli.location("--store", "directory or address of a token store"),
    cli.location("--workdir", "directory or address of a run"),
    cli.AS_JSON,
]


def run(options, overrides) -> int:
    cli.refuse_overrides(overrides)
    if bool(options.store) == bool(options.workdir):
        raise BadInput("verify: expected either --store or --workdir")
    if options.store:
        name = options.store
        problems = check_store(name)
    else:
        with workdir.opened(options.workdir) as run:
            name = run.name
            problems = check_run(run)
    lines = [": ".join(problem) for problem in problems]
    lines.append(f"{name}: problems: {len(problems)}")
    entries = [{"file": file, "problem": reason} for file, reason in problems]
    cli.show(options, {"valid": not problems, "problems": entries}, "\n".join(lines))
    return int(bool(problems))


def check_store(name: str | Path) -> list[tuple[str, str]]:
    """Returns (file, problem) of missing and altered files, by the manifest. Raises BadInput if there is no store."""
    directory = download.local(name)
    problems = []
    if not os.path.isfile(directory / "manifest.json"):
        raise BadInput(f"--store {name}: not a token store (no manifest.json)")
    with collect_errors(problems, directory):
        manifest = stores.read_manifest(directory)
        problems += manifests.check_files(directory, manifest, hashes=True)
    return problems


def check_run(run: Workdir) -> list[tuple[str, str]]:
    """Returns (file, problem) of the files of a run. Raises BadInput if there is no run.

    Checks checkpoints by their fingerprints, config and tokenizer by their digests in run.json, and whether the other
    files can be read. Without a readable run.json there is nothing to check them by.
    """
    directory = run.directory
    problems = []
    if not os.path.isfile(directory / "run.json"):
        raise BadInput(f"--workdir {directory}: not a run (no run.json)")
    checks = (
        ("config.json", "config", lambda path: continuation.digest(json_file.read(path))),
        ("tokenizer", "tokenizer", lambda path: tokenizer.load(path).fingerprint),
        ("status.json", None, json_file.read),
        ("metrics.jsonl", None, metrics_file.lines),
    )
    with collect_errors(problems, directory):
        info = workdir.read_info(directory)
        for name, key, read in checks:
            with collect_errors(problems, directory):
                value = read(directory / name)
                if key and value != info.get(key):
                    problems.append((name, "altered: its digest in run.json differs"))
        steps = reader.problems(run.checkpoints, str(info.get("run", "")))
        problems += [(f"checkpoints/{step}", reason) for step, reason in steps.items() if reason]
    return problems


@contextlib.contextmanager
def collect_errors(problems: list[tuple[str, str]], directory: Path):
    """Appends a BadInput of the context to the problems: the file that it names, and what it says about it."""
    try:
        yield
    except BadInput as error:
        name, _, text = str(error).removeprefix(f"{directory}/").partition(": ")
        problems.append((name, text))

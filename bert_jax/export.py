"""Writes a run's newest checkpoint as others read it: a Hugging Face directory or Google's TensorFlow checkpoint."""

import contextlib
import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np

from bert_jax import checkpoint, metrics, trained
from bert_jax.convert import card, directory
from bert_jax.errors import BadInput

CODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]*")  # of a licence or a language


def export(
    workdir: Path,
    output: Path,
    form: str = "huggingface",
    name: str = "",
    license: str = "",
    language: str = "",
) -> dict:
    """{output, files, bytes, parameters, step, seconds}. Nothing is left behind where it fails.

    form: huggingface or google. name, license, language: of the model card; licence and language as the hub spells
    them, `apache-2.0` and `en`.
    """
    started = time.monotonic()
    for option, value in (("--license", license), ("--language", language)):
        if value and not CODE.fullmatch(value):
            raise BadInput(f"{option} {value}: expected an identifier, as apache-2.0 or en")
    check_output(output)
    run = trained.open_run(workdir, restore=checkpoint.stored_params)
    check_run(run, workdir)
    with whole(output) as place:
        parameters = metrics.count(run.params, run.vocabulary.size)
        if form == "google":
            from bert_jax.convert import google

            params = jax.tree.map(np.asarray, run.params)
            google.write(place, run.config, run.vocabulary, run.tokenizer, params)
        else:
            # A head that an import has made up, and that nothing has trained since, is nobody's.
            fresh = run.facts.get("fresh", []) if run.step == 0 else []
            parts = [run.config, run.vocabulary, run.tokenizer, run.params, fresh]
            found, parameters = directory.write(place, *parts)
            about = card.About(
                name or workdir.absolute().name, license, language, output.name, parameters
            )
            card.write(place, run, workdir, found, about)
        sizes = {path.name: path.stat().st_size for path in sorted(place.iterdir())}
    return {
        "output": str(output),
        "files": list(sizes),
        "bytes": sum(sizes.values()),
        "parameters": parameters,
        "step": run.step,
        "seconds": time.monotonic() - started,
    }


def check_run(run, workdir: Path) -> None:
    """Raises BadInput where the other side has no name for the model."""
    for key, only in (("model.name", "bert"), ("objective.name", "mlm")):
        section, name = key.split(".")
        if run.config[section][name] != only:
            value = run.config[section][name]
            raise BadInput(f"{workdir}: {key}={value}: only {only} has a name elsewhere")


def check_output(output: Path) -> None:
    """Raises BadInput unless a directory can be put there: before anything is read."""
    if output.is_symlink() or (output.exists() and not output.is_dir()):
        raise BadInput(f"--output {output}: is there and is not a directory")
    parents = (output, *output.absolute().parents)
    there = next(path for path in parents if path.exists())
    if not there.is_dir():
        raise BadInput(f"--output {output}: {there} is not a directory")
    place = there.parent if there == output else there  # in which it will be renamed
    if not os.access(place, os.W_OK | os.X_OK) or not os.access(there, os.R_OK):
        raise BadInput(f"--output {output}: {place} cannot be written")
    if there == output and any(output.iterdir()):
        raise BadInput(f"--output {output}: is there and is not empty")


@contextlib.contextmanager
def whole(output: Path) -> Iterator[Path]:
    """A hidden directory beside `output`, renamed to it at the end, or removed."""
    output = output.absolute()
    made = [path for path in output.parents if not path.exists()]
    place = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        place.mkdir(parents=True)
        yield place
        for path in (*place.iterdir(), place):
            flush(path)
        os.replace(place, output)  # an empty directory may be there
        flush(output.parent)
    except BaseException as error:
        shutil.rmtree(place, ignore_errors=True)
        for path in made:
            with contextlib.suppress(OSError):
                path.rmdir()
        if isinstance(error, OSError):
            raise BadInput(f"--output {output}: {error.strerror}") from None
        raise


def flush(path: Path) -> None:
    """Brings a file, or the names in a directory, to the disk."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def describe(values: dict) -> str:
    return (
        f"{values['output']}: {', '.join(values['files'])}; {values['parameters']:,} parameters of step "
        f"{values['step']:,}, {values['bytes'] / 1e6:,.1f} MB in {values['seconds']:.1f} s"
    )

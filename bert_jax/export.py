"""Writes a run's newest checkpoint as others read it: a Hugging Face directory or Google's TensorFlow checkpoint."""

import os
import re
import time
from pathlib import Path

import jax
import numpy as np

from bert_jax import checkpoint, metrics, trained
from bert_jax.convert import card, directory
from bert_jax.errors import BadInput
from bert_jax.whole import free, whole

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
    free(output, "--output")
    run = trained.open_run(workdir, restore=checkpoint.stored_params)
    check_run(run, workdir)
    with whole(output, "--output") as place:
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
        flush_all(place)
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


def flush_all(directory: Path) -> None:
    """Brings the files of a directory, and their names, to the disk."""
    for path in (*directory.iterdir(), directory):
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

"""Opening a run to use its model."""

from pathlib import Path
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from bert_jax import checkpoint, config, runtime, tokenizer, workdir
from bert_jax.errors import BadInput
from bert_jax.objectives import base


class Trained(NamedTuple):
    config: ConfigDict
    facts: dict  # run.json
    vocabulary: base.Vocabulary
    tokenizer: tokenizer.Tokenizer
    objective: base.Objective
    step: int
    params: Any


def open_run(
    directory: Path, overrides: list[str] = (), restore=checkpoint.restore_params
) -> Trained:
    """The newest checkpoint of a run, its parameters on one device or as `restore` gives them."""
    directory = Path(directory)
    if not (directory / "config.json").is_file():
        raise BadInput(f"{directory}: not a run (no config.json)")
    settings = runtime.start(config.load(str(directory / "config.json"), overrides))
    facts = workdir.read_json(directory / "run.json")
    vocabulary = base.Vocabulary(**facts["vocabulary"])
    objective = base.make(settings, vocabulary)
    step, params = restore(directory / "checkpoints", objective)
    words = tokenizer.load(directory / "tokenizer")
    return Trained(settings, facts, vocabulary, words, objective, step, params)

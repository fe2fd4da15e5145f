"""Opens a run as a model: its config, its vocabulary and the parameters of its newest checkpoint."""

from pathlib import Path
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from bert_jax import config
from bert_jax.checkpoints import reader
from bert_jax.errors import BadInput
from bert_jax.objectives import base
from bert_jax.runs import continuation, jax_setup, metrics, metrics_file, workdir
from bert_jax.runs.workdir import Workdir
from bert_jax.storage import json_file
from bert_jax.tasks import base as tasks
from bert_jax.tokenizers import tokenizer as tokenizers
from bert_jax.tokenizers.special_tokens import Frame, Vocabulary, frame_of

# Keys of a run's config that depend on the machine it ran on; their defaults are used here.
MACHINE_KEYS = "compilation_cache model.attention mesh.data mesh.fsdp mesh.tensor".split()


class OpenModel(NamedTuple):
    """A loaded model: what it computes and with which parameters."""

    config: ConfigDict
    info: dict  # the content of run.json, or what `import` would write there
    vocabulary: Vocabulary
    tokenizer: tokenizers.Tokenizer
    objective: base.Objective
    step: int
    params: Any  # NumPy arrays

    @property
    def frame(self) -> Frame:
        """The special tokens around its texts, as ids."""
        return frame_of(self.config).ids(self.vocabulary._asdict())

    def can(self, ability: str) -> bool:
        """Returns whether it has an ability, a key of Objective.can."""
        return ability in self.objective.can


def is_run(directory: Path) -> bool:
    return (directory / "run.json").is_file()


def trained_positions(model: OpenModel) -> int:
    """Returns the number of positions that were trained, by this run or by the one that it started from; all of them
    for the network of another program, whose training is not known.
    """
    reached = [phase.length for phase in config.phases(model.config) if phase.first < model.step]
    positions = config.longest_row(model.config)
    if "imported" in model.info:
        reached.append(model.info["imported"].get("positions", positions))
    return max(reached, default=positions)


def open_run(run: Workdir, overrides: list[str] = ()) -> OpenModel:
    """Opens the checkpoint of `run.step` or, without it, the newest one of a run whose parameters match their
    fingerprints: with `evaluate.patience` the best one so far, and with `checkpoint.average` the mean of several.

    Raises BadInput if there is no such checkpoint, or if the config or the tokenizer were altered.
    """
    directory, checkpoints = run.directory, run.checkpoints
    for name in ("config.json", "run.json"):
        if not (directory / name).is_file():
            raise BadInput(f"{directory}: not a run (no {name}); name the workdir of one")
    steps = reader.steps(checkpoints)
    if not steps:
        raise BadInput(f"{checkpoints}: no checkpoints yet; wait for the first, or train on")
    if run.step is not None and run.step not in steps:
        existing = ", ".join(map(str, steps))
        raise BadInput(f"{run.name}@{run.step}: no such checkpoint; the run has {existing}")
    info = workdir.read_info(directory)
    settings = jax_setup.resolve(read_config(directory, info, overrides))
    best = run.step
    if best is None:
        best = find_best(run, settings)
    else:
        settings.checkpoint.average = 1
    average = settings.checkpoint.average
    step, params = reader.restore_params(checkpoints, info.get("run", ""), average, best)
    return with_params(directory, settings, step, params)


def with_params(directory: Path, settings: ConfigDict, step: int, params) -> OpenModel:
    """Returns the model of a run with its config and its parameters after a step.

    Raises BadInput if the tokenizer was altered.
    """
    info = workdir.read_info(directory)
    tokenizer = tokenizers.load(directory / "tokenizer")
    if info.get("tokenizer") != tokenizer.fingerprint:
        raise BadInput(f"{directory}/run.json: tokenizer is not that of tokenizer/; restore it")
    vocabulary = Vocabulary(tokenizer.size, **tokenizer.special)
    phase = config.phase_at(settings, step)
    objective = tasks.make_objective(settings, phase, vocabulary)
    settings = config.of_phase(settings, phase)
    return OpenModel(settings, info, vocabulary, tokenizer, objective, step, params)


def find_best(run: Workdir, settings: ConfigDict) -> int | None:
    """Returns the step of the run's best checkpoint: the one that summary.json names, or else the best of those that
    exist.

    Returns None without evaluate.patience, and before an evaluation.
    """
    if not settings.evaluate.patience:
        return None
    best = workdir.read_summary(run.directory).get("best")
    lines = metrics_file.lines(run.directory / "metrics.jsonl")
    best = best or metrics.best(settings, lines, reader.steps(run.checkpoints))
    return best.get("step")


def read_config(directory: Path, info: dict, overrides: list[str] = ()) -> ConfigDict:
    """Returns the config of a run with the overrides. Raises BadInput if it is not the config that was trained.

    Ignores its mesh and its attention implementation, which depend on the devices, and its compilation cache: JAX would
    execute the programs in that cache, which somebody else may have written.
    """
    path = directory / "config.json"
    digest = continuation.digest(json_file.read(path))
    if info.get("config", digest) != digest:
        raise BadInput(f"{path}: altered: its digest in run.json differs; restore it")
    values = config.flatten(config.base(config.find(str(path))))
    for override in overrides:
        name, _, _ = override.partition("=")
        key = name
        of_model = f"model.{name.rpartition('.')[2]}"
        if name.startswith("phases.") and of_model in values:  # a phase may have keys of the model
            key = of_model
        if continuation.is_of_model(key) and not continuation.may_change(key):
            raise BadInput(f"--config.{name}: cannot change the trained model of {directory}")
    defaults = [f"{key}={values[key]}" for key in MACHINE_KEYS if key in values]
    return config.load(str(path), [*defaults, *overrides])

"""Loads a model: the newest checkpoint of a run, or a directory in the format of another program."""

from pathlib import Path
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from bert_jax import config
from bert_jax.checkpoints import reader
from bert_jax.convert import (
    external_model,
    from_huggingface,
    names,
    pretrained_tokenizer,
    tensorflow_checkpoint,
)
from bert_jax.convert.external_model import Source
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


class Model(NamedTuple):
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


def open_model(name: Path | str, overrides: list[str] = (), head: str = "mlm") -> Model:
    """Opens a run (a directory or an address; RUN@STEP for one of its checkpoints), a Hugging Face directory, or a
    directory of a TensorFlow checkpoint.

    head: what is read of a model of another program besides its body:
        mlm: the heads of pretraining.
        label: also the dense layer of a fine-tuned model that bert_jax exported.
        '': nothing; its heads may be of any kind.
    """
    with workdir.opened_at(name) as run:
        if is_run(run.directory):
            return open_run(run, overrides)
        source = read_source(run.directory, head, model_name(None, overrides))
        return open_source(source, None, overrides)


def untrained_parts(model: Model) -> list[str]:
    """Returns the parts of names.py that import initialized and no step has trained yet."""
    return [] if model.step else model.info.get("fresh", [])


def trained(model: Model) -> dict[str, Any]:
    """Returns {path: array} of the parameters without the untrained parts."""
    arrays = names.by_path(model.params)
    fresh = untrained_parts(model)
    for parameter in names.parameters(model.config.model, model.config.objective.name):
        if parameter.part in fresh:
            arrays.pop(parameter.path, None)
    return arrays


def trained_positions(model: Model) -> int:
    """Returns the number of positions that training has reached, also that of the run whose network this one started
    from.

    Returns all of them for the network of another program, whose training is not known.
    """
    reached = [phase.length for phase in config.phases(model.config) if phase.first < model.step]
    positions = config.longest_row(model.config)
    if "imported" in model.info:
        reached.append(model.info["imported"].get("positions", positions))
    return max(reached, default=positions)


def is_run(directory: Path) -> bool:
    return (directory / "run.json").is_file()


def open_run(run: Workdir, overrides: list[str] = ()) -> Model:
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
        kept = ", ".join(map(str, steps))
        raise BadInput(f"{run.name}@{run.step}: no such checkpoint; the run has {kept}")
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


def with_params(directory: Path, settings: ConfigDict, step: int, params) -> Model:
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
    return Model(settings, info, vocabulary, tokenizer, objective, step, params)


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


def model_name(settings: ConfigDict | None, overrides: list[str]) -> str:
    """Returns the model.name of settings with overrides; '' if neither has one."""
    before = {"model.name": settings.model.name if settings else ""}
    return (before | dict(key.split("=", 1) for key in overrides))["model.name"]


def read_source(directory: Path, head: str = "mlm", model: str = "") -> Source:
    """Reads and checks a model of another program, in any known format. Raises BadInput for an unsupported model.

    head: see `open_model`. model: see names.find_model.
    """
    if is_run(directory):
        raise BadInput(
            f"{directory}: a run of bert_jax; continue it with pretrain, or export it first"
        )
    if not directory.is_dir():
        hint = "download a model from the hub first: hf download NAME --local-dir DIR"
        raise BadInput(f"{directory}: not the directory of a model; {hint}")
    for module in (from_huggingface, tensorflow_checkpoint):
        if module.matches(directory):
            source = module.read(directory, head, model)
            external_model.check(source)
            tokenizer = pretrained_tokenizer.with_unused(source.tokenizer, source.pieces)
            return source._replace(tokenizer=tokenizer)
    raise BadInput(
        f"{directory}: no model: expected a run, config.json and model.safetensors of Hugging Face,"
        " or bert_config.json and bert_model.ckpt of Google's BERT"
    )


def open_source(source: Source, settings: ConfigDict | None, overrides: list[str] = ()) -> Model:
    """Converts a model of another program. For `settings` see external_model.to_config."""
    settings = jax_setup.resolve(external_model.to_config(source, settings, overrides))
    vocabulary = Vocabulary(source.tokenizer.size, **source.tokenizer.special)
    objective = tasks.make_objective(settings, config.phase_at(settings, 0), vocabulary)
    params, fresh, unused = external_model.parameters(source, settings, objective)
    info = {
        "imported": {
            "source": source.directory.absolute().name,
            "format": source.format,
            "unused": unused,
        },
        "fresh": fresh,
        "vocabulary": vocabulary._asdict(),
    }
    return Model(settings, info, vocabulary, source.tokenizer, objective, 0, params)


def check_can(directory: Path | str, model: Model, *abilities: str) -> None:
    """Raises BadInput for a model that has none of these abilities (keys of Objective.can), or whose head for the first
    one that it has is not trained."""
    heads = [model.objective.can[name] for name in abilities if model.can(name)]
    if not heads:
        hint = (
            f"cannot {' or '.join(abilities)}; it can {', '.join(model.objective.can) or 'do none'}"
        )
        raise BadInput(f"{directory}: objective {model.config.objective.name!r} {hint}")
    if model.can("fill") and model.vocabulary.mask is None:
        raise BadInput(f"{directory}: its vocabulary has no [MASK]; name another model")
    if fresh := sorted(heads[0].intersection(untrained_parts(model))):
        raise BadInput(f"{directory}: its head {fresh[0]!r} is not trained; train it first")

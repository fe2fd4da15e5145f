"""Opening a model to use it: a run's newest checkpoint, or a directory that others can read."""

from pathlib import Path
from typing import Any, NamedTuple

import jax
from ml_collections import ConfigDict

from bert_jax import config
from bert_jax.checkpoints import reader
from bert_jax.convert import external_model, from_huggingface, tensorflow_checkpoint
from bert_jax.convert.external_model import Source
from bert_jax.data import batch
from bert_jax.errors import BadInput
from bert_jax.objectives import base
from bert_jax.runs import jax_setup, workdir
from bert_jax.runs.workdir import Workdir
from bert_jax.tokenizers import tokenizer
from bert_jax.tokenizers.special_tokens import Vocabulary

# Keys of a run's config that go with the devices and the machine where it ran.
ELSEWHERE = ("compilation_cache", "model.attention")


class Trained(NamedTuple):
    config: ConfigDict
    facts: dict  # run.json, or of a directory that is no run what import would write there
    vocabulary: Vocabulary
    tokenizer: tokenizer.Tokenizer
    objective: base.Objective
    step: int
    params: Any  # on the first device, or NumPy arrays


def open_model(name: Path | str, overrides: list[str] = ()) -> Trained:
    """A run, which may be at an address, a Hugging Face directory, or the directory of a TensorFlow checkpoint."""
    with workdir.opened(name) as run:
        if is_run(run.directory):
            return open_run(run, overrides)
        return open_source(read_source(run.directory), None, overrides)


def fresh(model: Trained) -> list[str]:
    """The parts of names.py that the model came without, and that no step has trained since."""
    return [] if model.step else model.facts.get("fresh", [])


def is_run(directory: Path) -> bool:
    return (directory / "run.json").is_file()


def open_run(run: Workdir, overrides: list[str] = (), on_device: bool = True) -> Trained:
    """The newest checkpoint of a run whose parameters verify; they stay NumPy arrays where not on_device."""
    directory, place = run.directory, run.checkpoints
    for name in ("config.json", "run.json"):
        if not (directory / name).is_file():
            raise BadInput(f"{directory}: not a run (no {name})")
    if not reader.steps(place):
        raise BadInput(f"{place}: no checkpoints yet")
    facts = workdir.read_json(directory / "run.json")
    settings = jax_setup.start(read_config(directory, facts, overrides))
    words = tokenizer.load(directory / "tokenizer")
    vocabulary = Vocabulary(words.size, **words.special)
    # An altered piece would be as wrong as an altered parameter.
    known = {"vocabulary": vocabulary._asdict(), "tokenizer": words.fingerprint}
    for key in known:
        if facts.get(key, known[key]) != known[key]:
            raise BadInput(f"{directory / 'run.json'}: {key}: not that of {directory}/tokenizer")
    objective = base.make(settings, vocabulary)
    step, params = reader.restore_params(place, facts.get("run", ""))
    if on_device:
        params = jax.device_put(params, jax.local_devices()[0])
    return Trained(settings, facts, vocabulary, words, objective, step, params)


def read_config(directory: Path, facts: dict, overrides: list[str]) -> ConfigDict:
    """The config of a run, if it is the one that was trained. Neither its way of attention is used, which goes with its
    devices, nor its cache of compiled programs: what lies there is executed, and the run may be somebody else's."""
    path = directory / "config.json"
    digest = config.digest(config.load(str(path)))
    if facts.get("config", digest) != digest:
        raise BadInput(f"{path}: altered: {directory / 'run.json'} has another digest of it")
    for name in (override.partition("=")[0] for override in overrides):
        if config.is_of_model(name) and not config.may_change(name):
            raise BadInput(f"--config.{name}: the model of {directory} is as it was trained")
    usual = [f"{key}={config.lookup(config.base(), key)}" for key in ELSEWHERE]
    return config.load(str(path), [*usual, *overrides])


def read_source(directory: Path) -> Source:
    """A directory of another program's, in whatever format it is. Raises BadInput for what is no model of ours."""
    if is_run(directory):
        raise BadInput(f"{directory}: a run of bert_jax; go on with it, or export it first")
    if not directory.is_dir():
        hint = "a model from the hub is downloaded first: hf download NAME --local-dir DIR"
        raise BadInput(f"{directory}: not a directory; {hint}")
    for form in (from_huggingface, tensorflow_checkpoint):
        if form.is_here(directory):
            found = form.read(directory)
            external_model.check(found)
            return found
    raise BadInput(
        f"{directory}: no model: neither a run, nor config.json and model.safetensors of Hugging Face, nor"
        " bert_config.json and bert_model.ckpt of the original program"
    )


def open_source(found: Source, settings: ConfigDict | None, overrides: list[str] = ()) -> Trained:
    """A model from outside, its parameters laid out as ours; for `settings` see source.to_config."""
    settings = jax_setup.start(external_model.to_config(found, settings, overrides))
    vocabulary = Vocabulary(found.tokenizer.size, **found.tokenizer.special)
    objective = base.make(settings, vocabulary)
    made = external_model.parameters(found, settings, objective)
    source = found.place.absolute().name
    imported = {"source": source, "format": found.format, "unused": made.unused}
    facts = {"imported": imported, "fresh": made.fresh, "vocabulary": vocabulary._asdict()}
    params = jax.device_put(made.params, jax.local_devices()[0])
    return Trained(settings, facts, vocabulary, found.tokenizer, objective, 0, params)


def check_masks(directory: Path, model: Trained) -> None:
    """Refuses a model that cannot fill in masks: another objective, or a masked-LM head that nobody has trained."""
    length = min(8, model.config.model.max_length)
    outputs = jax.eval_shape(model.objective.outputs, model.params, batch.shapes(1, length, 1))
    if "mlm_logits" not in outputs:
        name = model.config.objective.name
        raise BadInput(f"{directory}: objective {name!r} has no mlm_logits to fill in masks")
    if "mlm" in fresh(model):
        raise BadInput(f"{directory}: has no masked-LM head, so it does not fill in masks")

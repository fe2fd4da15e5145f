"""Opens a model: a run, or a directory in the format of another program."""

from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from bert_jax import config
from bert_jax.convert import (
    external_model,
    from_huggingface,
    names,
    pretrained_tokenizer,
    tensorflow_checkpoint,
)
from bert_jax.convert.external_model import ExternalModel
from bert_jax.errors import BadInput
from bert_jax.runs import jax_setup, workdir
from bert_jax.runs.open_run import OpenModel, is_run, open_run
from bert_jax.tasks import base as tasks
from bert_jax.tokenizers.special_tokens import Vocabulary


def open_model(name: Path | str, overrides: list[str] = (), head: str = "mlm") -> OpenModel:
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


def untrained_parts(model: OpenModel) -> list[str]:
    """Returns the parts of names.py that import initialized and no step has trained yet."""
    return [] if model.step else model.info.get("fresh", [])


def trained(model: OpenModel) -> dict[str, Any]:
    """Returns {path: array} of the parameters without the untrained parts."""
    arrays = names.by_path(model.params)
    fresh = untrained_parts(model)
    for parameter in names.parameters(model.config.model, model.config.objective.name):
        if parameter.part in fresh:
            arrays.pop(parameter.path, None)
    return arrays


def model_name(settings: ConfigDict | None, overrides: list[str]) -> str:
    """Returns the model.name of settings with overrides; '' if neither has one."""
    before = {"model.name": settings.model.name if settings else ""}
    return (before | dict(key.split("=", 1) for key in overrides))["model.name"]


def read_source(directory: Path, head: str = "mlm", model: str = "") -> ExternalModel:
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


def open_source(
    source: ExternalModel, settings: ConfigDict | None, overrides: list[str] = ()
) -> OpenModel:
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
    return OpenModel(settings, info, vocabulary, source.tokenizer, objective, 0, params)


def check_can(directory: Path | str, model: OpenModel, *abilities: str) -> None:
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

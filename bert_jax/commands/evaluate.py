"""`evaluate`: held-out numbers of a run's newest checkpoint, or of several models on the same text."""

import math
from functools import partial
from pathlib import Path

import jax

from bert_jax import cli, step
from bert_jax import config as configs
from bert_jax.commands import evaluate_models
from bert_jax.convert import load_model
from bert_jax.data.feed import open_feed
from bert_jax.errors import BadInput
from bert_jax.evaluate import Heldout, mean
from bert_jax.parallel import mesh as meshes
from bert_jax.runs import run_info, workdir

OPTIONS = [
    cli.option("--workdir", "of a run, on rows of its own store", type=cli.run_place),
    cli.option("--model", "directory of a model; may repeat", type=cli.run_place, action="append"),
    cli.option("--config", "whose held-out text the models are measured on"),
    cli.AS_JSON,
]


def run(options, overrides) -> int:
    is_run = bool(options.workdir)
    if is_run == bool(options.model) or is_run == bool(options.config):
        raise BadInput("evaluate: expected --workdir, or --model and --config, which has the text")
    if options.model:
        config = cli.load_config(options, overrides)
        values = evaluate_models.evaluate(options.model, config, cli.tell)
        return cli.show(options, values, evaluate_models.describe(values))
    values = evaluate_run(options.workdir, overrides)
    text = "\n".join(f"{name} {value:.6g}" for name, value in values.items())
    return cli.show(options, values, text)


def evaluate_run(name: Path | str, overrides: list[str] = ()) -> dict:
    """Held-out numbers of a run's newest checkpoint, on rows like those of its last phase."""
    with workdir.opened(name) as place:
        run = load_model.open_run(place, overrides)
        data = open_feed(run.config)
        run_info.check_store(place.directory, run.facts, run.step, data)
    mesh = mesh_for(run.config, overrides)
    phase = configs.phases(run.config)[-1]
    places = meshes.parameters(run.params, mesh)
    params = jax.device_put(run.params, places)
    function = jax.jit(partial(step.evaluate, objective=run.objective))
    with jax.set_mesh(mesh):
        batches = Heldout(data, run.config, phase, mesh)
        values = mean(function, params, batches)
    return {"step": run.step, "unigram_entropy": data.unigram_entropy, **values}


def mesh_for(config, overrides: list[str]):
    """The mesh that is asked for; else one over all devices, on which parameters are split if the run's were."""
    keys = config.mesh.copy_and_resolve_references()
    if not any(override.startswith("mesh.") for override in overrides):
        fsdp = math.gcd(jax.device_count(), keys.fsdp * keys.tensor, config.model.width)
        keys.update(data=-1, fsdp=fsdp, tensor=1)
    mesh = meshes.make_mesh(keys)
    meshes.check_model(mesh, config.model)
    return mesh

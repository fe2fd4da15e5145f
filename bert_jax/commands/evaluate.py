"""`evaluate`: held-out metrics of a run's newest checkpoint, or of several models on the same text."""

from pathlib import Path

import jax

from bert_jax import cli, evaluate
from bert_jax import config as configs
from bert_jax.commands import evaluate_models
from bert_jax.convert import load_model
from bert_jax.errors import BadInput
from bert_jax.objectives import base, metrics
from bert_jax.parallel import mesh as meshes
from bert_jax.parallel.processes import Cluster, joined
from bert_jax.runs import run_info, workdir
from bert_jax.tasks.feed import open_feed

OPTIONS = [
    cli.place("--model --workdir", "runs or models", action="append", **cli.REQUIRED),
    cli.option("--config", "config of the held-out text; default: that of the run"),
    cli.AS_JSON,
]


def run(options, overrides) -> int:
    if options.config:
        config = cli.load_config(options, overrides)
        values = evaluate_models.evaluate(options.model, config, cli.log_progress)
        return cli.show(options, values, evaluate_models.describe(values))
    if len(options.model) > 1:
        raise BadInput("evaluate: several models need --config, whose text they are evaluated on")
    # The keys of `distributed` are never saved, so those of the command line are all.
    keys = [key for key in overrides if key.startswith("distributed.")]
    with joined(configs.load("base", keys).distributed) as processes:
        values = evaluate_run(options.model[0], overrides, processes)
        lines = (f"{x:.6g}" if isinstance(x, float) else x for x in values.values())
        text = "\n".join(f"{name} {line}" for name, line in zip(values, lines, strict=True))
        return cli.show(options, values, text) if processes.is_main else 0


def evaluate_run(
    name: Path | str, overrides: list[str] = (), processes: Cluster | None = None
) -> dict:
    """Returns metrics of a run's newest checkpoint on the splits that are evaluated, on rows of its last phase's
    length. If there are several, the names begin with the split's.

    processes: that evaluate together; default: this one alone.
    """
    with workdir.opened(name) as opened:
        if not load_model.is_run(opened.directory):
            raise BadInput(
                f"{name}: not a run (no run.json); for another model, name a text by --config"
            )
        run = load_model.open_run(opened, overrides)
        data = open_feed(run.config)
        run_info.check_store(opened.directory, run.info, run.step, data)
    if processes:
        processes.compare({"step": run.step, "config.store: fingerprint": data.fingerprint})
    mesh = meshes.make_mesh(run.config)  # the default one unless overrides set another
    phase, headline = configs.phases(run.config)[-1], base.headline(run.config)
    params = jax.tree.map(place, run.params, meshes.parameters(run.params, mesh))
    program, values = evaluate.program(run.objective, mesh, bool(data.score)), {}
    with jax.set_mesh(mesh):
        for split in data.splits:
            batches = evaluate.Batches(data, run.config, phase, split, mesh)
            measured = evaluate.measure(program, params, batches)
            text = metrics.describe_headline(measured, headline, data.unigram_entropy)
            measured |= {"headline": text} if text else {}
            prefix = f"{split}/" if len(data.splits) > 1 else ""
            values |= {prefix + name: value for name, value in measured.items()}
    return {"step": run.step, "unigram_entropy": data.unigram_entropy, **values}


def place(array, sharding):
    """Puts an array of the host on the devices of all processes."""
    return jax.make_array_from_callback(array.shape, sharding, array.__getitem__)

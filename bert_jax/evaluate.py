"""Evaluates a model on whole splits, in batches of one size: means on the device, scores on the host."""

import math
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
from jax.sharding import Mesh

from bert_jax import config as configs
from bert_jax import step
from bert_jax.data.batch import check_ids, join
from bert_jax.models import base as models
from bert_jax.parallel import init_on_host
from bert_jax.parallel import mesh as meshes
from bert_jax.parallel.cluster import Cluster
from bert_jax.registry import user_function
from bert_jax.runs import jax_setup, metrics, open_run, run_info, workdir
from bert_jax.tasks import base as tasks
from bert_jax.tasks.feed import open_feed


def evaluate_run(name: Path | str, overrides=(), processes: Cluster | None = None) -> dict:
    """Returns metrics of a run's newest checkpoint on the splits that are evaluated, on rows of the phase of this
    checkpoint, as during training. If there are several splits, the names begin with the split's.

    processes: that evaluate together; default: this one alone.
    """
    with workdir.opened_at(name) as opened:
        run = open_run.open_run(opened, overrides)
        run.config.evaluate.samples = 0  # they are those of the training run
        jax_setup.start(run.config)
        tasks.check_scores(run.config)
        data = open_feed(run.config)
        run_info.check_store(opened.directory, run.info, run.step, data)
    processes = processes or Cluster()
    processes.compare({"step": run.step, "config.store: fingerprint": data.fingerprint})
    mesh = meshes.make_mesh(run.config)  # the default one unless overrides set another
    phase = configs.phase_at(run.config, run.step)
    metric = run.objective.headline
    params = jax.tree.map(
        init_on_host.put,
        run.params,
        meshes.parameters(run.params, mesh, models.shardings(run.config)),
    )
    compiled = program(run.objective, mesh, bool(data.score))
    values = {"step": run.step, "unigram_entropy": data.unigram_entropy}
    with jax.set_mesh(mesh):
        for split in data.splits:
            batches = Batches(data, run.config, phase, split, mesh)
            measured = measure(compiled, params, batches).values
            headline = metrics.describe_headline(measured, metric, data.unigram_entropy)
            if headline:
                measured["headline"] = headline
            prefix = f"{split}/" if len(data.splits) > 1 else ""
            values |= {prefix + name: value for name, value in measured.items()}
    return values


class Measured(NamedTuple):
    """The results of an evaluation of a split."""

    values: dict  # {metric: number, or a text about one}
    guesses: dict  # of the first rows, see objectives.base.guess; {} without
    review: dict  # see Dataset.review; {} without


def program(objective, mesh, is_scored: bool, samples: int = 0) -> Callable:
    """Returns the jitted `step.evaluate` of an objective, not yet compiled; every process has its results of all rows.

    is_scored: whether the task has a score, which needs the outputs.
    samples: rows of a batch whose guesses it returns.
    """
    options = dict(with_outputs=is_scored, samples=samples)
    function = partial(step.evaluate, objective=objective, **options)
    return jax.jit(function, out_shardings=meshes.replicated(mesh))


def measure(
    program: Callable, params, batches: "Batches", stopped=lambda: False
) -> Measured | None:
    """Returns {metric: number} of a split, the means over all batches and the task's scores, and the guesses of the
    first batch. `loss` is the loss of all rows as one batch.

    Returns None if `stopped()` is true after a batch.
    """
    total = None
    outputs = []
    guesses = []
    for batch in batches:
        # At most two batches are in flight, so that a signal is handled soon and batches do not fill the memory.
        jax.block_until_ready(total)
        *sums, batch_outputs, batch_guesses = program(params, batch)
        if stopped():
            return None
        total = sums if total is None else metrics.add(total, sums)
        outputs.append(jax.device_get(batch_outputs))
        guesses = guesses or [jax.device_get(batch_guesses)]
    means, terms = map(metrics.means, total)
    loss = sum(terms.values())
    scores, review = score(batches, outputs)
    return Measured({"loss": loss, **means, **scores}, *guesses, review)


def score(batches: "Batches", outputs: list[dict]) -> tuple[dict[str, float | str], dict]:
    """Returns the task's scores and its review of a split, computed on the host. outputs: those of each batch."""
    if not batches.score:
        return {}, {}
    rows = batches.local.rows
    arrays = {name: array[:rows] for name, array in join(outputs).items()}
    chosen = batches.local.chosen()
    scores = {
        name: value if isinstance(value, str) else float(value)
        for name, value in batches.score(arrays, chosen).items()
    }
    return scores, batches.review(arrays, chosen) if batches.review else {}


def user_metrics(model: open_run.OpenModel, names: Iterable[str]) -> dict[str, float]:
    """Returns what the function of config.evaluate.metric gives for a model.

    names: of other metrics.

    Raises BadInput if it does not give numbers by other names.
    """
    # Not on the mesh of the run, over which its rows need not divide.
    on_one = jax.set_mesh(Mesh(jax.local_devices()[:1], "one"))
    with user_function("evaluate.metric", model.config.evaluate.metric) as function, on_one:
        values = {name: float(value) for name, value in function(model).items()}
        same = values.keys() & {*names, "step", "split", "time", "headline"}
        if same:
            raise ValueError(f"there is already {', '.join(same)}")
        return values


def batch_size(config, phase, mesh) -> int:
    """Returns the rows of a batch that is evaluated: `evaluate.batch`, or the rows of a micro-batch, rounded up to a
    multiple of the number of row shards. Batches of all lengths of a phase have the same number of rows."""
    rows = config.evaluate.batch
    if not rows:
        longest = phase._replace(length=phase.keys.length)
        rows = math.ceil(phase.batch / meshes.micro_batches(mesh, longest, config.train))
    shards = meshes.axis_size(mesh, meshes.ROWS)
    return math.ceil(rows / shards) * shards


def id_check(feed, config) -> Callable:
    """Returns check(arrays of a batch), which raises BadInput for ids that the model or the task does not have."""
    size = feed.vocabulary.size
    ranges = tasks.make(config).ranges(size)
    return partial(check_ids, config, size, ranges=ranges)


class Batches:
    """The global batches of a split in a phase; every iteration yields the same batches."""

    def __init__(self, feed, config, phase, split: str, mesh):
        self.mesh = mesh
        self.batch = batch_size(config, phase, mesh)
        self.check = id_check(feed, config)
        self.positions = meshes.host_rows(mesh, self.batch)
        self.local = feed.evaluation(phase, split, self.batch, self.positions)
        self.score = feed.score and partial(feed.score, split)
        self.review = None
        samples = config.evaluate.samples
        is_reviewed = samples and feed.review and jax.process_index() == 0
        if is_reviewed and split == feed.splits[0]:
            self.review = lambda outputs, rows: feed.review(split, outputs, rows, samples)

    def __iter__(self):
        for index, arrays in enumerate(self.local):
            self.check(arrays)
            # The samples of an objective do not depend on the size of the batches.
            arrays = arrays | {"rows": arrays["rows"] + index * self.batch}
            yield meshes.to_devices(self.mesh, arrays, self.positions, self.batch)

"""Checks of the workdir, the data, the disk and the checkpoints to come, before step 0."""

import math
import shutil
from pathlib import Path

import jax

from bert_jax import config as configs
from bert_jax.checkpoints import reader
from bert_jax.checks import require
from bert_jax.errors import BadInput
from bert_jax.objectives import base
from bert_jax.parallel.chips import gib
from bert_jax.runs import workdir
from bert_jax.runs.workdir import CHECKPOINTS, Workdir


def read_run_id(run: Workdir) -> str:
    """Reads the id that a run's checkpoints carry; '' before the run has started. Raises BadInput if there are
    checkpoints, but no run.json."""
    path = run.directory / "run.json"
    if path.exists():
        return workdir.read_info(run.directory).get("run", "")
    if reader.steps(run.checkpoints):
        raise BadInput(
            f"{path}: missing, but there are checkpoints; restore it, or name another --workdir"
        )
    return ""


def check_data(config, data) -> list[str]:
    """Returns lines about the data of a run, a feed of tasks/feed.py. Raises BadInput if the run cannot work."""
    lines = [f"warning: {line}" for line in base.warnings(config)]
    if data.key == "batches":
        lines.append(f"{data.path} {data.describe()} (saved batches)")
    elif data.dataset.survey:
        rows = []
        for phase in configs.phases(config):
            survey = data.dataset.survey(phase)
            lines += [f"warning: {line}" for line in survey.warnings]
            rows.append(f"{phase.name} {survey.text}")
        lines.append(f"rows {'; '.join(rows)}")
        lines += [mixed.describe(data.tokens) for mixed in data.mixed()]
    return [f"preflight: {line}" for line in lines]


def check_disk(config, directory: Path, state_shapes) -> None:
    """Raises BadInput if the disk has no space for the checkpoints that are kept and one more that is being written."""
    size = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(state_shapes))
    keys = config.checkpoint
    steps = configs.total_steps(config)
    count = 1 + keys.keep_best + min(keys.keep, math.ceil(steps / keys.every))
    if keys.keep_every:
        count += steps // keys.keep_every
    count -= len(reader.steps(directory / CHECKPOINTS))
    free = shutil.disk_usage(directory).free
    if free < count * size:
        raise BadInput(
            f"config.checkpoint.keep={keys.keep}: {count} checkpoints of {gib(size)} GiB will be written, but"
            f" {directory} has {gib(free)} GiB free; delete files, or reduce config.checkpoint.keep"
        )


def check_average(config) -> None:
    """Raises BadInput if fewer checkpoints are left at the end of the run than are averaged."""
    kept = configs.kept_checkpoints(config)
    hint = f"the other keys of checkpoint keep {kept} of {configs.total_steps(config)} steps"
    require(config.checkpoint.average <= kept, "checkpoint.average", config, hint)

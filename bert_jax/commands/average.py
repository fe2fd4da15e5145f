"""`average`: writes the mean of checkpoints as a run that can be read, exported and started from."""

from pathlib import Path

import jax
import numpy as np

from bert_jax import cli
from bert_jax import config as configs
from bert_jax.checkpoints import writer
from bert_jax.errors import BadInput
from bert_jax.runs import continuation, open_run, workdir

OPTIONS = [
    cli.option("models", "checkpoint: RUN@STEP, or RUN for its newest", nargs="+", metavar="RUN"),
    cli.location("--output", "directory or address to write; must not exist yet", **cli.REQUIRED),
    cli.AS_JSON,
]


def run(options, overrides) -> int:
    cli.refuse_overrides(overrides)
    values = average(options.models, options.output)
    text = f"the mean of {', '.join(options.models)}: {options.output}"
    return cli.show(options, values, text)


def average(names: list[str], output: Path | str) -> dict:
    """Writes the mean of the parameters of checkpoints of one network to a directory or an address; returns its
    run.json. Config, tokenizer and step are those of the first one.

    Raises BadInput before anything is written, for checkpoints of different networks or tokenizers, too.
    """
    workdir.check_new(output)
    first = open_checkpoint(names[0])
    total = first.params
    for name in names[1:]:
        model = open_checkpoint(name)
        if model.tokenizer.fingerprint != first.tokenizer.fingerprint:
            raise BadInput(f"{name}: has another tokenizer than {names[0]}")
        for key, (before, value) in configs.differences(first.config, model.config).items():
            if continuation.is_of_model(key) and not continuation.may_change(key):
                raise BadInput(f"{name}: config.{key}={value!r}, {names[0]} has {before!r}")
        total = jax.tree.map(np.add, total, model.params)
    mean = jax.tree.map(lambda array: array / len(names), total)
    with workdir.opened_at(names[0]) as source, workdir.created(output) as run:
        config = configs.read(source.directory / "config.json")
        config.checkpoint.average = 1
        info = first.info | {"run": workdir.new_run_id(), "mean_of": names}
        info["config"] = continuation.digest(config)
        configs.save(config, run.directory / "config.json")
        first.tokenizer.save(run.directory / "tokenizer")
        writer.save_params(run.checkpoints, mean, info["run"], first.step)
        workdir.write_info(run.directory, info)
        workdir.write_status(run.directory, "done", step=first.step, steps=first.step)
    return info


def open_checkpoint(name: str) -> open_run.OpenModel:
    with workdir.opened_at(name) as run:
        return open_run.open_run(run)

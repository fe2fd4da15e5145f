"""`pretrain`: trains, or resumes from the newest checkpoint of the workdir."""

from functools import partial

from bert_jax import cli
from bert_jax.data import download
from bert_jax.tasks.labelled import epochs, examples

OPTIONS = [cli.CONFIG, cli.WORKDIR]


def run(options, overrides) -> int:
    config = cli.load_config(options, overrides)
    from bert_jax.train import pretrain

    resolve = None
    if examples.module_of(config) and not (config.init_from or config.batches):
        config.store = config.store or f"{download.absolute(str(options.workdir))}.store"
        resolve = partial(epochs.resolve, overrides=overrides)
    return pretrain(config, options.workdir, resolve)

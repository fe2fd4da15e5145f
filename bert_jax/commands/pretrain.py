"""`pretrain`: trains, or resumes from the newest checkpoint of the workdir."""

from bert_jax import cli
from bert_jax.data import download
from bert_jax.runs import workdir
from bert_jax.tasks.supervised import epochs, examples

OPTIONS = [cli.CONFIG, cli.WORKDIR]


def run(options, overrides) -> int:
    config = cli.load_config(options, overrides)
    from bert_jax.train import pretrain

    warn_of_unused(options, config)
    resolve = None
    if examples.of(config) and not (config.init_from or config.batches):
        config.store = config.store or f"{download.absolute(str(options.workdir))}.store"
        resolve = epochs.resolve
    return pretrain(config, options.workdir, resolve, overrides)


def warn_of_unused(options, config) -> None:
    """Prints a line if --config is that of a run whose parameters a new run in another workdir does not use."""
    source = download.absolute(workdir.of_config(options.config))
    start = download.absolute(config.init_from or config.continue_from).partition("@")[0]
    if source not in ("", start) and not workdir.of_config(f"{options.workdir}/config.json"):
        cli.log(
            f"pretrain: the parameters of {source} are not used: this run starts from {start or 'random weights'};"
            f" --workdir {source} continues that run, --config.init_from={source} takes its network"
        )

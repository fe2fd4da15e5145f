"""`pretrain`: trains, or resumes from the newest checkpoint of the workdir."""

from bert_jax import cli

OPTIONS = [cli.CONFIG, cli.WORKDIR]


def run(options, overrides) -> int:
    config = cli.load_config(options, overrides)
    from bert_jax.train import pretrain

    return pretrain(config, options.workdir)

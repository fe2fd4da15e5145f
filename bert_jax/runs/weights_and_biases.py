"""Weights & Biases: the reports of a run, as a run of `log.wandb` that has the same id after each start.

A process of the library uploads them. Whatever fails there, such as the network, does not end the training.
"""

from contextlib import suppress
from importlib.util import find_spec

from bert_jax.config import flatten
from bert_jax.errors import BadInput, one_line

FINISH = 15.0  # seconds for the last uploads; a machine that is preempted has 30


def check(config) -> None:
    """Raises BadInput if the library is missing."""
    if config.log.wandb and not find_spec("wandb"):
        hint = "pip install -c constraints.txt -e '.[wandb]'"
        raise BadInput(f"config.log.wandb={config.log.wandb!r}: {hint}")


class Uploads:
    """A run of Weights & Biases, with its files in wandb/ of the workdir. Without a network or a login, it is offline:
    `wandb sync` uploads it."""

    def __init__(self, config, **keys):
        """keys: of wandb.init."""
        import wandb

        entity, _, project = config.log.wandb.rpartition("/")
        keys |= dict(entity=entity or None, project=project, config=flatten(config))
        settings = wandb.Settings(console="off", silent=True, finish_timeout=FINISH)
        reason = ""
        try:
            if not wandb.login(verify=False, prompt=False):  # `init` would ask in a terminal
                keys["mode"] = "offline"
            self.run = wandb.init(settings=settings, resume="allow", **keys)
        except Exception as error:
            reason = f" ({one_line(error)})"
            wandb.teardown()  # the process of the library still holds the id
            self.run = wandb.init(settings=settings, **keys | {"mode": "offline"})
        self.address = (
            f"{self.run.url or self.run.dir}{reason}"  # where the reports go, for the log
        )

    def report(self, step: int, points: dict[str, float]) -> None:
        """Writes the points of a step, unless an earlier start wrote those of later steps."""
        with suppress(Exception):
            if step >= self.run.step:
                self.run.log(points, step=step)

    def close(self) -> None:
        with suppress(Exception):
            self.run.finish()

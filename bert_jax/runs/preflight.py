"""Checks of the data before step 0."""

from bert_jax import config as configs
from bert_jax.objectives import base


def check_data(config, data) -> list[str]:
    """Returns lines about the data of a run, a feed of tasks/feed.py. Raises BadInput if the run cannot work."""
    lines = [f"warning: {line}" for line in base.warnings(config)]
    if data.key == "batches":
        lines.append(f"{data.path} {data.describe()} (saved batches)")
    elif survey := data.dataset.survey:
        surveys = {phase.name: survey(phase) for phase in configs.phases(config)}
        lines += [f"warning: {line}" for each in surveys.values() for line in each.warnings]
        lines.append("rows " + "; ".join(f"{name} {each.text}" for name, each in surveys.items()))
    return [f"preflight: {line}" for line in lines]

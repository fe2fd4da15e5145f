"""Finds the target of a plan by its name: a TPU slice, or machines with GPUs."""

from bert_jax.errors import BadInput
from bert_jax.parallel.cards import CARDS
from bert_jax.parallel.chips import CHIPS
from bert_jax.planning import gpus, tpus

Target = tpus.Slice | gpus.Machines


def find(name: str) -> Target:
    """Returns the target of a name such as v5e:4x4, v5litepod-16 or h100:2x8. Raises BadInput for an unknown name."""
    target = tpus.find(name) or gpus.find(name)
    if target:
        return target
    slices = "; ".join(f"{kind}: {' '.join(chip.shapes)}" for kind, chip in CHIPS.items())
    raise BadInput(
        f"--topology {name}: expected all, v5e, v5e:4x4 or v5litepod-16, of {slices}; or h100:1, h100:8"
        f" or h100:2x8 (two machines), of {' '.join(CARDS)}"
    )

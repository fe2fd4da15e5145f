"""Pretraining of BERT, GPT and relatives in JAX: raw text in, a network for downstream tasks out."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bert_jax.inference.interface import Model

__version__ = "0.2.0"


def load(name: Path | str, dtype: str = "float32") -> "Model":
    """Opens a model to use it: a run (`RUN@STEP` for one of its checkpoints), an export, or a model of another program.

    dtype: of its computations: float32, or bfloat16.

    Changes no setting of the process. Raises `bert_jax.errors.BadInput` if there is no such model.
    """
    handlers = [*logging.root.handlers]
    from bert_jax.inference.interface import Model  # imports JAX

    model = Model(name, dtype)
    logging.root.handlers[:] = handlers  # without what Orbax adds
    return model

"""Finds the task of a config, and sets the keys that its data decides. registry.TaskPart has the names in its file."""

import jax

from bert_jax import config as configs
from bert_jax.checks import require
from bert_jax.data import download
from bert_jax.data.dataset import Dataset
from bert_jax.data.store import Store, open_store
from bert_jax.layers import attention as implementations
from bert_jax.layers.network import check_mesh
from bert_jax.models import base as models
from bert_jax.objectives import base as objectives
from bert_jax.registry import part_of
from bert_jax.storage import remote
from bert_jax.tokenizers.special_tokens import Vocabulary


def make(config, store: Store | None = None) -> Dataset:
    """Returns the dataset of the task. Without a store, only its shapes, its splits, and whether it has a score can be
    used.

    Raises BadInput if the store has too few documents.
    """
    return part_of(config, "task").make(config, store)


def tokens_per_step(config, phase) -> int:
    """Returns the tokens of a step of a phase, padding included: the places of all sequences of its batch, such as
    those of sources and of targets."""
    shapes = make(config).shapes(phase, phase.batch)
    return sum(leaf.size for name, leaf in shapes.items() if name.endswith("sequence_ids"))


def step_flops(config, phase, vocabulary: Vocabulary, params) -> float:
    """Returns the FLOPs of a step of a phase, see objectives.base.step_flops."""
    rows = make(config).shapes(phase, phase.batch)
    return objectives.step_flops(configs.of_phase(config, phase), vocabulary, params, rows)


def make_objective(config, phase, vocabulary: Vocabulary) -> objectives.Objective:
    """Returns the objective of a phase of a config, for batches of its task."""
    sequences = make(config).sequences(phase)
    config = configs.of_phase(config, phase)
    return objectives.make(config, vocabulary, sequences=sequences)


def fill(config, store: Store) -> None:
    """Sets the keys of the task that its data decides and that are empty, such as the names of labels.

    A store of labelled examples has their `labels`. Raises BadInput if the task cannot use them.
    """
    task = part_of(config, "task")
    values = {}
    if "labels" in store.manifest:
        values["labels"] = store.manifest["labels"]
    values |= task.fill(config, store)
    take_filled(config, values)
    task.check(config)


def take_filled(config, values: dict) -> None:
    """Sets the empty keys of the task, () or 0 of FILLED, to those of `values`, {key: value}, such as the task's keys
    in a saved config."""
    numbers = part_of(config, "task").FILLED
    for key, value in values.items():
        empty = config.task.get(key)
        if value and (empty == () or (key in numbers and empty == 0)):
            config.task[key] = type(empty)(value)


def attention(config, phase, mesh) -> str:
    """Returns the implementations of attention that train a phase on a mesh, such as `xla and xla`, each kind of layers
    by itself; '' if the network has no `specs`.

    `config.dtype` must be resolved, not `auto`. All sequences have rows of the phase's length. Raises BadInput if the
    model is not divisible by the mesh, or for what an implementation does not support.
    """
    network = models.make(config, 0, sequences=make(config).sequences(phase))
    specs = getattr(network, "specs", ())
    if not specs:
        return ""
    check_mesh(config, mesh)
    shape = phase.length, config.model.heads // mesh.shape["tensor"], config.dtype
    device = implementations.device_and_kernels(mesh)
    case = implementations.Case(*device, *shape, keys=phase.length)
    prefix = f"phases.{phase.name}."
    names = [implementations.choose(spec, case, prefix) for spec in dict.fromkeys(specs)]
    return " and ".join(names)


def check_scores(config) -> None:
    """Raises BadInput if the scores of a task cannot be computed."""
    part_of(config, "task").check_scores(config)


def check_prepared(config) -> None:
    """Raises BadInput if there are several processes and no store."""
    is_ready = jax.process_count() == 1 or download.exists(config.store)
    require(is_ready, "store", config, "missing; run bert-jax prepare first")


def local_store(config, log) -> Store | None:
    """Opens the store of a config if it is on this disk, and fills the task's keys from it; None if it is not.

    Without it, empty keys take the values that the task assumes; they are logged. Raises BadInput if the store is
    damaged.
    """
    if remote.is_address(config.store) or not download.exists(config.store):
        assumed = part_of(config, "task").assume(config)
        for key, value in assumed.items():
            if config.task[key] == ():
                log(f"config.task.{key}=(): not known without the store; {value} is assumed")
        take_filled(config, assumed)
        return None
    store = open_store(config.store)
    fill(config, store)
    return store

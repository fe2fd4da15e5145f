"""Batches of sentence pairs from a store without a tokenizer: `Spec` has the config keys that decide them."""

from typing import NamedTuple

from kits import rows
from ml_collections import ConfigDict

from bert_jax import config as configs
from bert_jax.data import stream
from bert_jax.tasks.text import sentence_pairs


class Spec(NamedTuple):
    seed: int
    phase: int  # its number
    length: int
    batch: int
    max_predictions: int
    pair_task: str = "nsp"
    masking: str = "token"
    mask_rate: float = 0.15
    mask_share: float = 0.8
    random_share: float = 0.1
    short_rate: float = 0.1
    max_packed: int = 1

    @property
    def config(self) -> ConfigDict:
        names = "masking mask_rate mask_share random_share short_rate pair_task".split()
        task = {name: getattr(self, name) for name in names}
        return rows.settings(self.length, self.seed, **task)

    @property
    def phase_keys(self) -> configs.Phase:
        shape = self.length, self.batch, self.max_predictions, self.phase
        return rows.phase(*shape, max_packed=self.max_packed)

    @property
    def rules(self):
        return sentence_pairs.rules(self.config, self.phase_keys)


def spec(config, phase: str) -> Spec:
    """Returns the Spec of a phase of a config."""
    keys = {**config.phases[phase], **config.task, "seed": config.seed}
    keys["phase"] = tuple(config.phase_order).index(phase)
    return Spec(**{key: keys[key] for key in Spec._fields})


def dataset(store, spec, word_starts=None):
    return sentence_pairs.make(spec.config, store, word_starts)


def pipeline(store, spec, word_starts, positions=None, split="train"):
    settings = dataset(store, spec, word_starts), spec.phase_keys, split, spec.seed, spec.batch
    return stream.Pipeline(*settings, positions)


def train_batches(store, word_starts, spec, first, last, positions=None):
    return stream.batches(pipeline(store, spec, word_starts, positions), first, last)


def heldout(store, word_starts, spec, rows, positions=None):
    pairs = dataset(store, spec, word_starts)
    return stream.EvaluationBatches(pairs, spec.phase_keys, "heldout", rows, spec.batch, positions)


def epoch_rows(store, spec, epoch=0, split="train"):
    """Returns the rows of an epoch, before their random order."""
    return dataset(store, spec).rows(spec.phase_keys, split, epoch)


def steps_per_epoch(store, spec):
    return max(1, len(epoch_rows(store, spec)) // spec.batch)

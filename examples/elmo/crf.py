"""Labels of the words of a sentence by a conditional random field (arXiv:1603.01360): a score for each label of a word,
and one for each pair of labels of words that follow each other.

A sentence may have places without a label, which the labels pass over. It reads, besides the arrays of the network,

    targets         int32[B, L]     the label of a word
    label_weights   float32[B, L]   0 for a place without a label

Its output label_logits, float32[B, L, C], is 1 for the labels of the best path.

B batch, L length, C labels.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from bert_jax.layers.dense import Dense
from bert_jax.models import base as models
from bert_jax.objectives import base
from bert_jax.parallel import constraints

DEFAULTS = {}


class Scores(NamedTuple):
    """What paths are made of besides the scores of labels at places."""

    begin: jax.Array  # float32[C], of the first label of a path
    transitions: jax.Array  # float32[C, C], from a label to the next one
    end: jax.Array  # float32[C], of the last label


class Paths(NamedTuple):
    """Paths up to a place, by their last label."""

    scores: jax.Array  # float32[B, C]
    is_begun: jax.Array  # bool[B], whether there is a label yet


def extend(paths: Paths, logits, is_labelled, scores: Scores, reduce) -> tuple[Paths, jax.Array]:
    """Returns the paths with one more place, and the scores of all that lead to a label, [B, C, C].

    logits: float32[B, C].
    is_labelled: bool[B].
    reduce: logsumexp over paths, or their maximum.
    """
    candidates = paths.scores[:, :, None] + scores.transitions
    before = jnp.where(paths.is_begun[:, None], reduce(candidates, axis=1), scores.begin)
    after = jnp.where(is_labelled[:, None], before + logits, paths.scores)
    return Paths(after, paths.is_begun | is_labelled), candidates


def walk(logits, is_labelled, scores: Scores, reduce) -> tuple:
    """Returns the paths through all places, and at each place the best label before each label, int32[L, B, C]."""

    def step(paths, now):
        paths, candidates = extend(paths, *now, scores, reduce)
        return paths, candidates.argmax(axis=1)

    rows, _, labels = logits.shape
    start = Paths(jnp.zeros((rows, labels)), jnp.zeros(rows, bool))
    paths, before = jax.lax.scan(step, start, (logits.swapaxes(0, 1), is_labelled.T))
    return paths._replace(scores=paths.scores + scores.end), before


def log_partition(logits, is_labelled, scores: Scores):
    """Returns the logarithm of the sum over all paths, float32[B]; 0 without a label."""
    paths, _ = walk(logits, is_labelled, scores, nn.logsumexp)
    return jnp.where(paths.is_begun, nn.logsumexp(paths.scores, axis=-1), 0.0)


def score(logits, labels, is_labelled, scores: Scores):
    """Returns the score of the path of labels int32[B, L], float32[B]; 0 without a label.

    It is that of all paths, where only those with these labels are possible.
    """
    is_other = jnp.arange(logits.shape[-1]) != labels[..., None]
    return log_partition(jnp.where(is_other, -jnp.inf, logits), is_labelled, scores)


def best_path(logits, is_labelled, scores: Scores):
    """Returns the labels of the best path, int32[B, L] (Viterbi); without a meaning at places without a label."""
    paths, before = walk(logits, is_labelled, scores, jnp.max)

    def step(label, now):
        before, is_labelled = now
        first = jnp.take_along_axis(before, label[:, None], axis=1)[:, 0]
        return jnp.where(is_labelled, first, label), label

    last = paths.scores.argmax(axis=-1)
    _, labels = jax.lax.scan(step, last, (before, is_labelled.T), reverse=True)
    return labels.T


def losses(logits, labels, is_labelled, scores: Scores):
    """Returns the negative log-likelihood of the labels of each row in nats, float32[B]."""
    total = log_partition(logits, is_labelled, scores)
    return total - score(logits, labels, is_labelled, scores)


class Transitions(nn.Module):
    """The scores of pairs of labels, which begin at zero."""

    labels: int

    @nn.compact
    def __call__(self) -> Scores:
        sizes = {"begin": 1, "transitions": 2, "end": 1}
        zeros = nn.initializers.zeros
        return Scores(
            *(self.param(name, zeros, (self.labels,) * axes) for name, axes in sizes.items())
        )


class Labels(nn.Module):
    """A network of words with scores of labels."""

    network: nn.Module
    labels: int

    def setup(self):
        self.label = Dense(self.labels, 0.02)
        self.crf = Transitions(self.labels)

    def logits(self, batch, keys):
        return self.label(self.network(batch, keys).astype(jnp.float32))

    def __call__(self, batch, keys):
        """Returns label_nats float32[B]."""
        arrays = self.logits(batch, keys), batch["targets"], batch["label_weights"] > 0
        return {"label_nats": constraints.map_rows(losses)(*arrays, scores=self.crf())}

    def best(self, batch):
        """Returns label_logits float32[B, L, C], 1 for the labels of the best path."""
        is_labelled = batch["label_weights"] > 0
        find = constraints.map_rows(best_path)
        labels = find(self.logits(batch, None), is_labelled, scores=self.crf())
        return {"label_logits": jax.nn.one_hot(labels, self.labels)}


def make(config, vocabulary, **fields):
    """Returns the objective: the loss of a sentence, in nats a word."""

    def weights(batch):
        return {"label": jnp.maximum(batch["label_weights"].sum(), 1.0)}

    def terms(outputs, batch):
        return {"label_loss": (outputs["label_nats"].sum(), batch["label_weights"].sum())}

    def decode(call, batch):
        return call("best")(batch)

    labels = max(2, len(config.task.get("labels", ())))  # empty until there is a store
    network = models.make(config, vocabulary.size, **fields)
    reads = "characters", "targets", "label_weights"
    return base.from_module(Labels(network, labels), weights, terms, decode, reads=reads)

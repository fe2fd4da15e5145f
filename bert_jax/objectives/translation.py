"""Translation (arXiv:1706.03762): predicts every token of the target from those before it and from the source.

B batch, T length of the target, V padded vocabulary. It reads the arrays of models/transformer.py.
"""

import jax.numpy as jnp
from flax import linen as nn

from bert_jax.checks import check_keys, require
from bert_jax.config import longest_row
from bert_jax.layers import decoding
from bert_jax.models import base as models
from bert_jax.objectives import base
from bert_jax.tokenizers.special_tokens import Vocabulary, target_frame

DEFAULTS = {
    # share of the probability that is spread over all pieces, the target among them (arXiv:1512.00567)
    "label_smoothing": 0.1,
    # How translations are decoded in evaluations; `predict` has a beam of 4. These keys may be changed at any time.
    "beams": 1,  # hypotheses of the beam search; 1: greedy
    "length_penalty": 0.6,  # alpha of the rule; 0: none. Larger values prefer longer translations
    # what the log-probability of a hypothesis of n tokens is divided by: gnmt (((5 + n) / 6)^alpha) or transformers
    # (n^alpha)
    "length_rule": "gnmt",
}


def check(config) -> None:
    """Raises BadInput for the first of the objective's keys that has an invalid value."""
    check_keys(
        config,
        choices={"objective.length_rule": decoding.RULES},
        shares=["objective.label_smoothing"],
        at_least_one=["objective.beams"],
        not_negative=["objective.length_penalty"],
    )


class Translator(nn.Module):
    """An encoder-decoder with logits at each token of the target."""

    network: nn.Module

    def __call__(self, batch, keys):
        """Returns target_logits float32[B, T, V]: at each token those of the next one."""
        return {"target_logits": self.network.vocabulary_logits(self.network(batch, keys))}

    def start(self, batch, length: int):
        return self.network.start(batch, length)

    def step(self, tokens, cache):
        return self.network.step(tokens, cache)


def make(config, vocabulary: Vocabulary, **fields) -> base.Objective:
    """Returns the objective: the term `translation` with label smoothing in nats, and the metrics `target_nll`, without
    smoothing, and `target_accuracy`; means over all tokens of the targets.

    Its outputs are translations, decoding.Decoded: `translations` int32[B, N, T], `lengths` int32[B, N], `scores`
    float32[B, N], and `is_cut` bool[B]. A translation has at most `task.extra_pieces` tokens more than its source, and
    at most `longest_row`; of a task without this key, at most the latter. Raises BadInput for a model without a
    decoder.
    """
    keys = config.objective
    most = longest_row(config)
    extra = config.task.get("extra_pieces") or most
    smoothing = keys.label_smoothing
    search = decoding.Search(keys.beams, keys.length_penalty, keys.length_rule)

    frame = target_frame(config.model.name).ids(vocabulary._asdict())

    def weigh(batch):
        """Returns float32[B, T]: 1 for a token of a target that another one of it follows."""
        return base.has_next(batch["target_sequence_ids"]) * batch["row_weights"][:, None]

    def weights(batch):
        return {"translation": jnp.maximum(weigh(batch).sum(), 1.0)}

    def terms(outputs, batch):
        # The last position is not cut off: TPUs compute arrays in tiles of 128 tokens.
        targets = jnp.roll(batch["target_tokens"], -1, axis=1)
        logits = outputs["target_logits"]
        weight = weigh(batch)
        smoothed = base.cross_entropy(logits, targets, smoothing, vocabulary.size)
        return {
            "translation_loss": base.weighted_mean(smoothed, weight),
            "target_nll": base.weighted_mean(base.cross_entropy(logits, targets), weight),
            "target_accuracy": base.weighted_mean(base.hits(logits, targets), weight),
        }

    def decode(call, batch):
        sizes = (batch["sequence_ids"] > 0).sum(axis=1, dtype=jnp.int32)
        length = min(most, batch["tokens"].shape[1] + extra)
        # A row that only fills the batch has no source.
        limits = jnp.where(sizes > 0, sizes + extra, 0)
        stop = decoding.Stop(frame.end[0], length, limits)
        first = jnp.full_like(sizes, frame.begin[-1])
        cache = call("start")(batch, decoding.rooms(length)[0] * keys.beams)
        if keys.beams == 1:
            decoded = decoding.greedy(call("step"), cache, first, stop)
        else:
            decoded = decoding.beam(call("step"), cache, first, stop, search)
        return {
            "translations": decoded.tokens,
            "lengths": decoded.lengths,
            "scores": decoded.scores,
            "is_cut": decoded.is_cut,
        }

    network = models.make(config, vocabulary.size, **fields)
    require(hasattr(network, "step"), "model.name", config, "has no decoder")
    return base.from_module(
        Translator(network),
        weights,
        terms,
        decode,
        reads=("target_tokens", "target_positions", "target_sequence_ids"),
        headline="target_nll",
        can={"translate": set()},
    )

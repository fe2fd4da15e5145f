"""The taggers of TagLM (arXiv:1705.00108) and ELMo (arXiv:1802.05365): two layers of LSTMs, each from both ends of a
sentence, over the characters and the embeddings of its words, and the states of a language model. The LSTMs are those
of the language model, with a projection of their output, which the papers' taggers do not have.

B batch, L length in words, H width of each direction.
"""

import jax.numpy as jnp
from elmo import model as language_model
from elmo.lstm import LSTM
from flax import linen as nn
from jax.sharding import PartitionSpec

from bert_jax.checks import check_keys
from bert_jax.layers.dropout import maybe_dropout
from bert_jax.layers.embeddings import Embedder
from bert_jax.layers.heads import Mix

# The keys of the language model have to equal those of the run in init_from. Its dropout is not used.
DEFAULTS = language_model.DEFAULTS | {
    # where the states of the language model go. none: nowhere, there is none. input: the mix of its layers beside the
    # words (ELMo). between: those of its last layer beside the output of the first layer (TagLM)
    "lm": "none",
    "word_width": 64,  # size of the embeddings of words, which are trained
    "word_filters": 32,  # filters over 3 characters of a word, which are trained
    "state": 128,  # size of the cell and the output of each LSTM
    "word_dropout": 0.5,  # dropout rate in front of each layer, and behind the last one
}
BODY = ("bilm",)
TAKES = {"elmo.model": {"": "bilm"}}
RULES = (*language_model.RULES, (r"crf/(begin|transitions|end)$", PartitionSpec()))
DECAY = (*language_model.DECAY, (r"crf/(begin|transitions|end)$", False))
FRAME = language_model.FRAME
CLIP = float("inf")  # none


def check(config):
    language_model.check(config)
    sizes = ("word_width", "word_filters", "state")
    check_keys(
        config,
        choices={"model.lm": ("none", "input", "between")},
        shares=["model.word_dropout"],
        at_least_one=[f"model.{size}" for size in sizes],
    )


class Bidirectional(nn.Module):
    """An LSTM from each end, [B, L, I] -> [B, L, 2 H]."""

    size: int
    gradient_dtype: jnp.dtype

    @nn.compact
    def __call__(self, x, is_real):
        sizes = self.size, self.size, CLIP, x.shape[1], self.gradient_dtype
        left, _ = LSTM(*sizes, name="forward")(x, is_real)
        right, _ = LSTM(*sizes, name="backward")(x[:, ::-1], is_real[:, ::-1])
        return jnp.concatenate([left, right[:, ::-1]], axis=-1)


class Tagger(nn.Module, kw_only=True):
    """Sentences to the states of their words."""

    bilm: nn.Module | None
    embedder: Embedder
    filters: nn.Module
    state: int
    lm: str
    dropout: float

    def setup(self):
        self.layer_0 = Bidirectional(self.state, self.filters.gradient_dtype)
        self.layer_1 = Bidirectional(self.state, self.filters.gradient_dtype)
        self.mix = Mix()

    def __call__(self, batch, keys=None):
        """Returns [B, L, 2 H]."""
        is_real = batch["sequence_ids"] > 0
        words = self.embedder(batch["tokens"], None, None)
        inputs = [words.astype(self.filters.dtype), self.filters(batch["characters"])]
        # As features: without dropout, and optimizer.frozen keeps its parameters.
        states = self.bilm.states(batch) if self.bilm else []
        if self.lm == "input":
            inputs.append(self.mix(states))
        x = maybe_dropout(jnp.concatenate(inputs, axis=-1), keys, 0, self.dropout)
        x = self.layer_0(x, is_real)
        if self.lm == "between":
            x = jnp.concatenate([x, states[-1]], axis=-1)
        x = self.layer_1(maybe_dropout(x, keys, 1, self.dropout), is_real)
        return maybe_dropout(x, keys, 2, self.dropout)


def make(config, vocabulary_size, **fields):
    model = config.model
    dtypes = jnp.dtype(config.dtype), jnp.dtype(config.gradient_dtype)
    bilm = None
    if model.lm != "none":
        bilm = language_model.make(config, vocabulary_size).clone(parent=None)
    sizes = vocabulary_size, 0, 0, model.word_width
    return Tagger(
        bilm=bilm,
        embedder=Embedder(*sizes, 0.1, *dtypes[::-1], parent=None),
        filters=language_model.Filters(
            (0, 0, model.word_filters), model.character_width, "tanh", *dtypes, parent=None
        ),
        state=model.state,
        lm=model.lm,
        dropout=model.word_dropout,
    )

"""Rows of words with their characters, from a store of WordPiece.

The pieces of a word are put together again. A word that is one piece is a target; one of several is [UNK] as a target,
but is read by its characters. Documents are one after the other, each between [CLS] and [SEP]; no way predicts where
another document begins. Rows are those of token_blocks, in words: in training they are full, and held-out ones are
windows that overlap by a word, so that each word is predicted once from each side. A batch has

    characters          int32[B, L, M]    see characters.py; 0 in the padding
    next_weights        float32[B, L]     whether the word after this one counts
    previous_weights    float32[B, L]     whether the word before this one counts

B rows, L length in words, M characters of a word, W words of a split.
"""

from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from elmo import characters

from bert_jax.checks import require
from bert_jax.data import batch, mixture
from bert_jax.data.dataset import Dataset, draw_key
from bert_jax.data.store import Split, number_of
from bert_jax.tasks.text import documents, token_blocks

DEFAULTS = {
    "characters": 50,  # of a word, two marks included; longer words are cut
    **mixture.DEFAULTS,
}
PHASE_DEFAULTS = mixture.PHASE_DEFAULTS
NEEDS = "unk cls sep"
PIECES = 16  # of a word, at most; the rest is cut
MARKS = 2  # between two documents: [SEP] and [CLS]


def check(config):
    token_blocks.check(config)
    require(config.task.characters >= 8, "task.characters", config, "expected at least 8")


class Pieces(NamedTuple):
    """The pieces of a vocabulary."""

    texts: list[str]  # without the sign that continues a word
    begins_word: np.ndarray  # bool[V]
    special: dict[str, int]


def read_pieces(config, store) -> Pieces:
    """Returns the pieces of a store. Raises BadInput unless they are those of WordPiece, which are parts of words."""
    tokenizer = store.tokenizer
    is_valid = tokenizer.kind == "wordpiece"
    require(
        is_valid, "tokenizer.kind", config, "expected wordpiece, or a vocab.txt as tokenizer.path"
    )
    texts = [piece.removeprefix(tokenizer.continues) for piece in tokenizer.pieces]
    return Pieces(texts, tokenizer.word_starts, tokenizer.special)


def in_words(split: Split, begins_word: np.ndarray) -> Split:
    """Returns a split whose tokens are words: the place of the first piece of each, int32 or int64[W], and whose
    sentences end in words."""
    firsts = np.flatnonzero(begins_word[split.tokens])
    ends = np.searchsorted(firsts, split.sentence_ends)
    return split._replace(tokens=firsts, sentence_ends=ends)


def make(config, store=None) -> Dataset:
    """Returns the dataset of a store; see tasks/base.py."""
    size = config.task.characters

    @cache
    def pieces() -> Pieces:
        return read_pieces(config, store)

    @cache
    def words(split: str) -> Split:
        return in_words(store.splits[split], pieces().begins_word)

    def shapes(phase, rows: int) -> dict:
        shape = rows, phase.length
        arrays = {"characters": (*shape, size), "next_weights previous_weights": shape}
        return batch.shapes(*shape) | batch.structs(arrays)

    def rows(phase, split: str, epoch: int) -> documents.Rows:
        begin, end = documents.stream_range(words(split), MARKS)
        if number_of(split):
            return token_blocks.windows(begin, np.array([end]), phase.length)
        key = draw_key(config.seed, "cuts", 0, phase.text, epoch)
        return token_blocks.full_blocks(begin, end, phase.length, key)

    def make_batch(phase, split: str, rows, keys) -> dict:
        part = words(split)
        path = store.splits[split].path / "tokens.npy"
        separators = documents.separators(part, MARKS)
        stream = Stream(path, part.tokens, separators, pieces())
        return stream.gather(rows, phase.length, size)

    return Dataset(
        shapes=shapes,
        rows=rows,
        make=make_batch,
        sequences=lambda phase: 1,
        ranges=lambda vocabulary: {"characters": characters.SIZE},
        **mixture.fields(config, store),
    )


class Stream(NamedTuple):
    """The documents of a split, one after the other, in words. Its methods are TensorFlow operations."""

    path: Path  # of the pieces of the split
    firsts: np.ndarray  # int64[W], the place of the first piece of each word
    separators: np.ndarray  # the place of [SEP] after each document in the stream
    pieces: Pieces

    def gather(self, rows, length: int, size: int) -> dict:
        """Returns the arrays of a batch. rows: int64[B, 2], start and size in the stream. size: M."""
        import tensorflow as tf

        from bert_jax.data import assemble

        start = rows[:, :1]
        count = rows[:, 1:]
        position = assemble.number_columns(length, tf.int64)
        is_real = position < count
        places = start + tf.minimum(position, count - 1)
        with tf.init_scope():  # constants of the graph would be copied
            firsts = tf.constant(self.firsts)

        def look_up(places):
            places = tf.maximum(places, 0)
            return assemble.gather_stream(firsts, self.separators, places, MARKS)[:2]

        first, is_end = look_up(places)
        is_begin = look_up(places - 1)[1] | (places < 0)
        ids, texts = self.read(first)
        special = self.pieces.special
        ids = tf.where(is_begin, special["cls"], tf.where(is_end, special["sep"], ids))
        codes = encode(texts, size)
        for is_mark, code in (is_begin, characters.BEGIN), (is_end, characters.END):
            codes = tf.where(is_mark[..., None], tf.constant(characters.mark(code, size)), codes)
        zeros = tf.zeros_like(ids)
        return {
            "tokens": tf.where(is_real, ids, special["sep"]),
            "segments": zeros,
            "positions": assemble.as_ids(tf.where(is_real, position, 0)),
            "sequence_ids": assemble.as_ids(is_real),
            "cls_positions": zeros[:, :1],
            "characters": tf.where(is_real[..., None], codes, 0),
            "next_weights": neighbours(is_real, ~is_begin, 1),
            "previous_weights": neighbours(is_real, ~is_end, -1),
        }

    def read(self, first):
        """Returns the target int32[B, L] and the text of each word. first: int32[B, L], places of first pieces."""
        import tensorflow as tf

        from bert_jax.data import assemble

        tokens = assemble.map_file(self.path)
        with tf.init_scope():
            begins_word = tf.constant(self.pieces.begins_word)
            pieces = tf.constant(self.pieces.texts)
        places = first[..., None] + tf.range(PIECES)
        is_inside = places < tf.shape(tokens)[0]
        ids = assemble.as_ids(tf.gather(tokens, tf.where(is_inside, places, 0)))
        continues = is_inside & ~tf.gather(begins_word, ids) | (tf.range(PIECES) == 0)
        is_part = tf.math.cumprod(tf.cast(continues, tf.int32), axis=-1) > 0
        texts = tf.strings.reduce_join(tf.where(is_part, tf.gather(pieces, ids), ""), axis=-1)
        return tf.where(is_part[..., 1], self.pieces.special["unk"], ids[..., 0]), texts


def encode(texts, size: int):
    """Returns the characters int32[..., M] of words, as characters.encode does. size: M."""
    import tensorflow as tf

    most = size - 2
    # Behind the end of a word are zeros, which none has.
    codes = tf.cast(tf.io.decode_raw(texts, tf.uint8, fixed_length=most), tf.int32)
    codes = tf.pad(codes, [[0, 0]] * (len(codes.shape) - 1) + [[1, 1]])
    position = tf.range(size)
    end = 1 + tf.minimum(tf.strings.length(texts), most)[..., None]
    codes = tf.where(position < end, codes + 1, characters.PADDING)
    codes = tf.where(position == end, characters.WORD_END, codes)
    return tf.where(position == 0, characters.WORD_BEGIN, codes)


def neighbours(is_real, counts, shift: int):
    """Returns float32[B, L]: whether the word behind each one, or with shift -1 that in front of it, counts.

    is_real, counts: bool[B, L].
    """
    import tensorflow as tf

    from bert_jax.data import assemble

    length = is_real.shape[1]
    position = tf.range(length) + shift
    is_inside = (position >= 0) & (position < length)
    counts = tf.roll(is_real & counts, -shift, axis=1)
    return assemble.as_weights(is_real & counts & is_inside)

"""Computes the sentence pairs of an epoch, (split, rules, epoch) -> index. Pure NumPy.

Rows are made as in BERT's create_pretraining_data.py. Whole sentences are collected into a chunk up to the document's
target length. A is the chunk up to a random sentence; B is the rest of the chunk, or a part of another document.
Sentences that a random B leaves unused go into the next chunk. Unlike there, a random B comes from all documents of A's
source, and never from A's own document. Without a pair task, A is the whole chunk and B is empty.

Every draw is a hash of (seed, phase, epoch, document, first sentence of the chunk), so the start of a chunk determines
the start of the next one. The next start is computed for all sentences at once; the chunks are those reached from the
first sentence of each document. An index is int64[R, 3]: the start of A in tokens, the start of B, and both lengths and
the label packed into one number (see `pack`).
"""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from bert_jax import prng
from bert_jax.data.dataset import A_SIZE, A_START, B_SIZE, B_START, LABEL, draw_key
from bert_jax.data.row_index import Indexes, digest, index_directory
from bert_jax.data.store import SPLITS, Split, Store
from bert_jax.tasks.text import documents

VERSION = 4  # of the algorithm; part of the digest in the names of index files
HALF = np.uint32(1 << 31)
MAX_TOKENS = (1 << 16) - 1  # tokens of A or B: a length has 16 bits in the index
# The columns of a row that become those of the row with A and B swapped.
SWAPPED = B_START, B_SIZE, A_START, A_SIZE, LABEL


class Rules(NamedTuple):
    """The settings that decide the rows of any split and epoch."""

    seed: int
    phase: int  # index in config.phase_order
    length: int  # tokens of a row
    special: int  # tokens of their frame
    pair_task: str  # nsp, sop or none
    short_rate: float  # share of documents with a short random target length


class EpochBlock(NamedTuple):
    """Some whole documents in an epoch."""

    split: Split
    rules: Rules
    epoch: int
    numbers: np.ndarray  # uint32[D], those of the documents in the split
    sentences: documents.Sentences


class Chunks(NamedTuple):
    """Chunks of sentences; arrays of equal length."""

    start: np.ndarray  # first sentence, in the block
    size: np.ndarray  # number of sentences
    a_size: np.ndarray  # number of sentences in A
    is_random: np.ndarray  # bool: B is from another document


def pack(rows: np.ndarray) -> np.ndarray:
    """Packs rows, int64[R, 5], into an index, int64[R, 3]: starts of A and B, and both lengths and the label in one
    number."""
    a_start, a_size, b_start, b_size, label = rows.T
    sizes = a_size | b_size << 16 | label << 32
    return np.stack([a_start, b_start, sizes], axis=1)


def unpack(index: np.ndarray) -> np.ndarray:
    """Inverts `pack`: int64[..., 3] -> int64[..., 5]."""
    a_start, b_start, sizes = np.moveaxis(index, -1, 0)
    a_size = sizes & MAX_TOKENS
    b_size = sizes >> 16 & MAX_TOKENS
    label = sizes >> 32
    return np.stack([a_start, a_size, b_start, b_size, label], axis=-1)


def indexes(store: Store, split: str, rules: Rules) -> Indexes:
    """Returns the index files of the sentence pairs of one split under one set of rules."""
    name = f"{split}-{rules.length}-{digest(store, VERSION, rules)}"
    parts = partial(build, store.splits[split], rules)
    return Indexes(index_directory(store.path), name, np.int64, 3, parts)


def build(split: Split, rules: Rules, epoch: int) -> Iterator[np.ndarray]:
    """Yields the index of an epoch in document order, in parts int64[r, 3]."""
    for numbers in documents.ranges(split):
        block = open_block(split, rules, epoch, numbers)
        chunks = find_chunks(block)
        yield pack(make_rows(block, chunks))


def open_block(split: Split, rules: Rules, epoch: int, numbers: np.ndarray) -> EpochBlock:
    """Returns the block of the documents with these numbers, int64[D], ascending."""
    sentences = documents.sentences(split, numbers)
    return EpochBlock(split, rules, epoch, numbers.astype(np.uint32), sentences)


def find_chunks(block: EpochBlock) -> Chunks:
    """Returns the chunks of a block, in order: those reached from the first sentence of each document."""
    possible, following = find_possible_chunks(block)
    is_reached = np.zeros(len(following), bool)
    current = block.sentences.firsts
    while current.size:  # one chunk of every document at a time
        is_reached[current] = True
        current = following[current]
        current = current[current >= 0]
    return Chunks(*(field[is_reached] for field in possible))


def find_possible_chunks(block: EpochBlock) -> tuple[Chunks, np.ndarray]:
    """Returns the chunk that would start at every sentence, and the start of the next chunk; -1 at a document's end."""
    sentences = block.sentences
    pair_task = block.rules.pair_task
    start = np.arange(len(sentences.ends))
    last = sentences.lasts[sentences.owner]
    goal = sentences.begins + target_lengths(block)[sentences.owner]
    full_at = np.searchsorted(sentences.ends, goal)  # the sentence that reaches the target length
    size = np.minimum(full_at, last) - start + 1
    if pair_task == "none":
        a_size = size
        is_random = np.zeros(len(start), bool)
    else:
        bits = draw_bits(block, start, "sentences_in_a")
        a_size = 1 + prng.below(bits, np.maximum(size - 1, 1))
        is_random = size == 1
    if pair_task == "nsp":
        is_random |= draw_bits(block, start, "random_pair") < HALF
    # The sentences that a random B leaves unused go into the next chunk.
    following = start + np.where(is_random, a_size, size)
    following[following > last] = -1
    return Chunks(start, size, a_size, is_random), following


def target_lengths(block: EpochBlock) -> np.ndarray:
    """Returns int64[D]: the target length of each document's chunks, in tokens.

    It is a full row or, with probability `short_rate`, a random length from 2 to a full row.
    """
    room = block.rules.length - block.rules.special
    keys = document_keys(block, "target_length")
    share = prng.uniform(prng.fold(keys, np.uint32(0)))
    is_short = share < block.rules.short_rate
    bits = prng.fold(keys, np.uint32(1))
    short = 2 + prng.below(bits, room - 1)
    return np.where(is_short, short, room)


def make_rows(block: EpochBlock, chunks: Chunks) -> np.ndarray:
    """Returns the rows of chunks, int64[R, 5]: draws random and swapped pairs, and truncates A and B to fit.

    Their columns are those of dataset.py. The label is, by the pair task:

    nsp: 1 if B is random. sop: 1 if A and B are swapped.
    """
    sentences = block.sentences
    begin = sentences.begins[chunks.start]
    middle = sentences.ends[chunks.start + chunks.a_size - 1]
    end = sentences.ends[chunks.start + chunks.size - 1]
    columns = [begin, middle - begin, middle, end - middle, chunks.is_random]
    rows = np.stack(columns, axis=1)
    draw_random_b(block, chunks, rows)
    if block.rules.pair_task == "sop":
        bits = draw_bits(block, chunks.start, "swap")
        is_swapped = ~chunks.is_random & (bits < HALF)
        rows[is_swapped] = rows[is_swapped][:, SWAPPED]
        rows[is_swapped, LABEL] = 1
    keys = draw_bits(block, chunks.start, "truncate")
    truncate(rows, block.rules.length - block.rules.special, keys)
    return rows


def draw_random_b(block: EpochBlock, chunks: Chunks, rows: np.ndarray) -> None:
    """Draws B for the chunks with a random B, and writes it into their rows, int64[R, 5]."""
    where = np.flatnonzero(chunks.is_random)
    start = chunks.start[where]
    split = block.split
    owner = block.sentences.owner[start]
    bits = draw_bits(block, start, "random_document")
    documents_of_a = block.numbers[owner].astype(int)
    other = other_documents(split, documents_of_a, bits)
    first, after = documents.spans(split.document_ends, other)
    bits = draw_bits(block, start, "random_start")
    sentence = first + prng.below(bits, after - first)
    wanted = target_lengths(block)[owner] - rows[where, A_SIZE]
    begin, end = sentences_from(split, sentence, after, wanted)
    rows[where, B_START] = begin
    rows[where, B_SIZE] = end - begin


def other_documents(split: Split, documents_of_a: np.ndarray, bits: np.ndarray) -> np.ndarray:
    """Returns int64[N]: for each document of A another document of its source, uniformly drawn.

    If the source has only one document, draws from the whole split. Drawing from the same source matters for corpora in
    several languages: there, a B in another language than A would give away the label.
    """
    source = np.searchsorted(split.source_ends, documents_of_a, side="right")
    first, after = documents.spans(split.source_ends, source)
    is_alone = after - first == 1
    first[is_alone] = 0
    after[is_alone] = len(split.document_ends)
    other = first + prng.below(bits, after - first - 1)
    return other + (other >= documents_of_a)


def sentences_from(split, sentence, after, wanted) -> tuple[np.ndarray, np.ndarray]:
    """Returns the token range, int64[N] each, of whole sentences from `sentence` on with at least `wanted` tokens.

    It has at least one sentence. It ends before sentence `after`, even if it has fewer tokens.
    """
    begin, end = documents.spans(split.sentence_ends, sentence)
    goal = begin + wanted
    following = sentence + 1
    growing = np.arange(len(sentence))
    while growing.size:  # reads fewer pages of the file than a binary search would
        is_short = end[growing] < goal[growing]
        has_next = following[growing] < after[growing]
        growing = growing[is_short & has_next]
        end[growing] = split.sentence_ends[following[growing]]
        following[growing] += 1
    return begin, end


def truncate(rows: np.ndarray, room: int, keys: np.ndarray) -> None:
    """Removes tokens from both ends of A and B, at random, in rows, int64[R, 5], until both have `room` together.

    They are removed from the longer of the two, or from B if equal. keys: uint32[R], of the draws.
    """
    a_size = rows[:, A_SIZE]
    b_size = rows[:, B_SIZE]
    most_a = np.maximum(room - b_size, (room + 1) // 2)
    most_b = np.maximum(room - a_size, room // 2)
    columns = [(A_START, A_SIZE, most_a), (B_START, B_SIZE, most_b)]
    for side, (start, size, most) in enumerate(columns):
        lost = np.maximum(rows[:, size] - most, 0)
        rows[:, start] += fair_coins(prng.fold(keys, np.uint32(side)), lost)
        rows[:, size] -= lost


def fair_coins(keys: np.ndarray, tosses: np.ndarray) -> np.ndarray:
    """Returns int64[R]: the number of heads in `tosses` fair coin tosses, which is how many tokens the front loses.

    Up to 1024 tosses are drawn one by one. For more, the heads of 1024 tosses are scaled to the right mean and
    variance, so that a sentence of a million tokens costs no more.
    """
    drawn = np.minimum(tosses, 1024)
    heads = np.zeros(len(tosses), np.int64)
    for first in range(0, drawn.max(initial=0), 32):  # one word of bits has 32 tosses
        tossed = np.flatnonzero(drawn > first)
        unused = np.maximum(first + 32 - drawn[tossed], 0).astype(np.uint32)
        bits = prng.fold(keys[tossed], np.uint32(first // 32))
        heads[tossed] += np.bitwise_count(bits >> unused)
    scaled = tosses / 2 + (heads - 512) * np.sqrt(tosses / 1024)
    scaled = np.rint(scaled).astype(np.int64)
    return np.where(tosses > 1024, scaled.clip(0, tosses), heads)


def draw_bits(block: EpochBlock, start: np.ndarray, purpose: str) -> np.ndarray:
    """Returns uint32[R]: the bits of chunks for a purpose, keyed by the document and the first sentence, `start`."""
    owner = block.sentences.owner[start]
    number = (start - block.sentences.firsts[owner]).astype(np.uint32)
    return prng.fold(document_keys(block, purpose)[owner], number)


def document_keys(block: EpochBlock, purpose: str) -> np.ndarray:
    """Returns uint32[D]: the key of a purpose for each document of a block."""
    key = purpose_key(block.split, block.rules, block.epoch, purpose)
    return prng.fold(key, block.numbers)


def purpose_key(split: Split, rules: Rules, epoch: int, purpose: str) -> np.ndarray:
    """Returns the key, uint32[1], of a purpose in an epoch of a split, see dataset.draw_key."""
    return draw_key(rules.seed, purpose, SPLITS.index(split.path.name), rules.phase, epoch)

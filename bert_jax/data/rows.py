"""The rows of an epoch, (split, rules, epoch) -> index: sentence pairs or full sentences.

Rows are made the way the original create_pretraining_data does it (FACTS, "Data"): whole sentences
gather into a chunk up to the document's target length, A is the chunk up to a random sentence, B
the rest of the chunk or a piece of another document, and sentences that a random B leaves unused go
into the next chunk. Here B comes from the whole split and never from A's document.

Every draw is a hash of (seed, phase, epoch, document, first sentence of the chunk), so where the
next chunk starts is a function of where this one does. It is computed for all sentences at once;
what the first sentence of a document leads to are the chunks. NumPy, pure. An index is int64[R, 3]: where A
starts in tokens, where B starts, and lengths and label in one number.
"""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from bert_jax import hash
from bert_jax.data.store import SPLITS, Split
from bert_jax.errors import BadInput

PAIRS = ("nsp", "sop", "none")
COLUMNS = 3
BLOCK = 1 << 19  # sentences at a time; one document is never parted, however long it is
HALF = np.uint32(1 << 31)
ROUNDS = 4  # of the permutation
LONGEST = (1 << 16) - 1  # tokens of A or B that fit into their 16 bits


class Rules(NamedTuple):
    """How rows are made, of any split and in any epoch."""

    seed: int
    phase: int  # number of the phase in the run
    length: int  # tokens a row, with [CLS] and [SEP]
    pairs: str  # nsp, sop or none
    short_rate: float  # share of documents with a short random target length


class Rows(NamedTuple):
    """Token ranges of the two sentences, and the label; int64[R] each."""

    a_start: np.ndarray
    a_length: np.ndarray
    b_start: np.ndarray
    b_length: np.ndarray
    label: np.ndarray  # nsp: 1 if B is random; sop: 1 if A and B are swapped


class Block(NamedTuple):
    """Some whole documents; sentences and documents counted from the block's first."""

    document: int  # number of the first document in the split
    begins: np.ndarray  # int64[S] where each sentence begins in the split's tokens
    ends: np.ndarray  # int64[S] where it ends
    owner: np.ndarray  # int64[S] its document
    firsts: np.ndarray  # int64[D] the first sentence of each document
    lasts: np.ndarray  # int64[D] the last one


class Chunks(NamedTuple):
    """Where the chunk goes that starts at each sentence; arrays of one length."""

    start: np.ndarray  # first sentence, in the block
    size: np.ndarray  # sentences
    a_size: np.ndarray  # of these in A
    random: np.ndarray  # bool: B is from another document


def special_pieces(pairs: str) -> int:
    """[CLS] and the [SEP] after every sentence."""
    return 2 if pairs == "none" else 3


def check_rules(split: Split, rules: Rules) -> None:
    """Raises BadInput if no rows can be made."""
    shortest = special_pieces(rules.pairs) + 2
    if rules.pairs not in PAIRS:
        raise BadInput(f"pairs {rules.pairs!r}: not one of {', '.join(PAIRS)}")
    if not shortest <= rules.length <= LONGEST:
        raise BadInput(f"length {rules.length}: must be from {shortest} to {LONGEST}")
    if not 0 <= rules.short_rate <= 1:
        raise BadInput(f"short_rate {rules.short_rate}: must be from 0 to 1")
    documents, needed = len(split.document_ends), 1 if rules.pairs == "none" else 2
    if documents < needed:
        raise BadInput(
            f"{split.path}: {documents} documents, pairs {rules.pairs!r} needs at least {needed}"
        )


def pack(rows: Rows) -> np.ndarray:
    """Rows -> int64[R, 3]."""
    sizes = rows.a_length | rows.b_length << 16 | rows.label << 32
    return np.stack([rows.a_start, rows.b_start, sizes], axis=1)


def unpack(index):
    """The inverse of `pack`, on anything with integer columns: NumPy or TensorFlow int64[..., 3]."""
    a_start, b_start, sizes = index[..., 0], index[..., 1], index[..., 2]
    b_and_label = sizes // (1 << 16)
    label = b_and_label // (1 << 16)
    return Rows(
        a_start,
        sizes - b_and_label * (1 << 16),
        b_start,
        b_and_label - label * (1 << 16),
        label,
    )


def build(
    split: Split, rules: Rules, epoch: int, cancelled: Callable[[], bool] = lambda: False
) -> Iterator[np.ndarray]:
    """The index of an epoch in document order, in parts int64[r, 3]; ends early once `cancelled`."""
    for block in blocks(split):
        if cancelled():
            return
        yield pack(make_rows(split, rules, epoch, block, find_chunks(split, rules, epoch, block)))


def count(split: Split, rules: Rules, epoch: int, cancelled=lambda: False) -> int:
    """The number of rows in an epoch."""
    total = 0
    for block in blocks(split):
        if cancelled():
            break
        total += len(find_chunks(split, rules, epoch, block).start)
    return total


def blocks(split: Split) -> Iterator[Block]:
    ends = split.document_ends
    first = 0
    while first < len(ends):
        begin = int(ends[first - 1]) if first else 0
        after = max(first + 1, int(np.searchsorted(ends, begin + BLOCK, side="right")))
        yield open_block(split, first, after, begin)
        first = after


def open_block(split: Split, first: int, after: int, begin: int) -> Block:
    """Documents first..after-1, whose first sentence is `begin`."""
    document_ends = np.asarray(split.document_ends[first:after]) - begin
    firsts = np.concatenate([[0], document_ends[:-1]])
    ends = np.asarray(split.sentence_ends[begin : begin + int(document_ends[-1])])
    begins = np.concatenate([[split.sentence_ends[begin - 1] if begin else 0], ends[:-1]])
    owner = np.repeat(np.arange(after - first), document_ends - firsts)
    return Block(first, begins, ends, owner, firsts, document_ends - 1)


def find_chunks(split: Split, rules: Rules, epoch: int, block: Block) -> Chunks:
    """The chunks of a block, in order: those that its documents' first sentences lead to."""
    possible, following = every_chunk(split, rules, epoch, block)
    reached = np.zeros(len(following), bool)
    here = block.firsts
    while here.size:  # all documents in lock step
        reached[here] = True
        here = following[here]
        here = here[here >= 0]
    return Chunks(*(field[reached] for field in possible))


def every_chunk(split, rules, epoch, block) -> tuple[Chunks, np.ndarray]:
    """For every sentence the chunk that would start there, and where the next would; -1 after a
    document."""
    start = np.arange(len(block.ends))
    goal = block.begins + target_lengths(split, rules, epoch, block)[block.owner]
    last = np.minimum(np.searchsorted(block.ends, goal), block.lasts[block.owner])
    size = last - start + 1
    if rules.pairs == "none":
        a_size, random = size, np.zeros(len(start), bool)
    else:
        draw = drawer(split, rules, epoch, block, start)
        a_size = 1 + hash.below(draw("sentences_in_a"), np.maximum(size - 1, 1))
        random = size == 1
        if rules.pairs == "nsp":
            random |= draw("random_pair") < HALF
    following = start + np.where(random, a_size, size)  # unused sentences are put back
    following[following > block.lasts[block.owner]] = -1
    return Chunks(start, size, a_size, random), following


def target_lengths(split, rules, epoch, block) -> np.ndarray:
    """int64[D]: what a document's chunks grow to: a full row or, with `short_rate`, anything from 2
    tokens."""
    room = rules.length - special_pieces(rules.pairs)
    key = hash.fold(purpose_key(split, rules, epoch, "target_length"), document_numbers(block))
    short = hash.uniform(hash.fold(key, np.uint32(0))) < rules.short_rate
    return np.where(short, 2 + hash.below(hash.fold(key, np.uint32(1)), room - 1), room)


def make_rows(split: Split, rules: Rules, epoch: int, block: Block, chunks: Chunks) -> Rows:
    draw = drawer(split, rules, epoch, block, chunks.start)
    a_begin, a_end = block.begins[chunks.start], block.ends[chunks.start + chunks.a_size - 1]
    b_begin, b_end = a_end.copy(), block.ends[chunks.start + chunks.size - 1]
    label = chunks.random
    if rules.pairs != "none":
        fill_random(split, rules, epoch, block, chunks, a_end - a_begin, b_begin, b_end)
    if rules.pairs == "sop":
        swap = ~chunks.random & (draw("swap") < HALF)
        a_begin, b_begin = np.where(swap, b_begin, a_begin), np.where(swap, a_begin, b_begin)
        a_end, b_end = np.where(swap, b_end, a_end), np.where(swap, a_end, b_end)
        label = chunks.random | swap
    room = rules.length - special_pieces(rules.pairs)
    a_length, b_length = truncated_lengths(a_end - a_begin, b_end - b_begin, room)
    bits = draw("truncate")
    a_start = a_begin + fair_coins(hash.fold(bits, np.uint32(0)), a_end - a_begin - a_length)
    b_start = b_begin + fair_coins(hash.fold(bits, np.uint32(1)), b_end - b_begin - b_length)
    return Rows(a_start, a_length, b_start, b_length, label.astype(np.int64))


def fill_random(split, rules, epoch, block, chunks, a_length, b_begin, b_end) -> None:
    """Writes where the random B of the random chunks lies into `b_begin` and `b_end`."""
    where = np.flatnonzero(chunks.random)
    start = chunks.start[where]
    draw = drawer(split, rules, epoch, block, start)
    own = block.document + block.owner[start]
    other = hash.below(draw("random_document"), len(split.document_ends) - 1)
    other += other >= own  # one of the others, each as likely
    first = np.where(other > 0, split.document_ends[other - 1], 0)
    after = split.document_ends[other]
    sentence = first + hash.below(draw("random_start"), after - first)
    begin = np.where(sentence > 0, split.sentence_ends[sentence - 1], 0)
    wanted = target_lengths(split, rules, epoch, block)[block.owner[start]] - a_length[where]
    # At least one sentence, also where A alone is as long as the target.
    last = np.searchsorted(split.sentence_ends, begin + np.maximum(wanted, 1))
    b_begin[where] = begin
    b_end[where] = split.sentence_ends[np.minimum(last, after - 1)]


def truncated_lengths(a: np.ndarray, b: np.ndarray, room: int) -> tuple[np.ndarray, np.ndarray]:
    """Lengths after popping from the longer of the two, from B where they are equal, until both
    fit."""
    return np.minimum(a, np.maximum(room - b, (room + 1) // 2)), np.minimum(
        b, np.maximum(room - a, room // 2)
    )


def fair_coins(keys: np.ndarray, tosses: np.ndarray) -> np.ndarray:
    """int64[R]: how many of `tosses` fair coins show heads: the tokens popped from the front.

    Up to 1024 tosses are tossed one by one. For more, the heads among 1024 are stretched to the
    mean and variance of as many, so that a sentence of a million tokens costs no more.
    """
    few = np.minimum(tosses, 1024)
    heads = np.zeros(len(tosses), np.int64)
    for word in range(32):
        more = np.flatnonzero(few > 32 * word)
        if not more.size:
            break
        unused = 32 - np.minimum(few[more] - 32 * word, 32)
        bits = hash.fold(keys[more], np.uint32(word)) >> unused.astype(np.uint32)
        heads[more] += np.bitwise_count(bits)
    stretched = tosses / 2 + (heads - 512) * np.sqrt(tosses / 1024)
    return np.where(tosses > 1024, np.rint(stretched).astype(np.int64).clip(0, tosses), heads)


def drawer(split, rules, epoch, block, start) -> Callable[[str], np.ndarray]:
    """purpose -> uint32 bits for each chunk, from its document and its first sentence's number in
    the document."""
    owner = block.owner[start]
    sentence = (start - block.firsts[owner]).astype(np.uint32)
    numbers = document_numbers(block)

    def draw(purpose: str) -> np.ndarray:
        documents = hash.fold(purpose_key(split, rules, epoch, purpose), numbers)
        return hash.fold(documents[owner], sentence)

    return draw


def document_numbers(block: Block) -> np.ndarray:
    return (block.document + np.arange(len(block.firsts))).astype(np.uint32)


def purpose_key(split: Split, rules: Rules, epoch: int, purpose: str) -> np.ndarray:
    """uint32[1]; an array because NumPy warns where scalars overflow."""
    number = SPLITS.index(split.path.name)
    return np.full(1, hash.key(rules.seed, hash.PURPOSE[purpose], number, rules.phase, epoch))


def shuffle(numbers: np.ndarray, count: int, key: np.ndarray) -> np.ndarray:
    """int64[...] in [0, count) -> int64[...] in [0, count), a permutation for every key.

    A Feistel network over the digits of a number in two bases whose product is just over `count`;
    what falls beyond `count` walks on until it falls below.
    """
    left_base = math.isqrt(count - 1) + 1
    right_base = -(-count // left_base)
    round_keys = np.split(hash.fold(key, np.arange(2 * ROUNDS, dtype=np.uint32)), 2 * ROUNDS)
    shuffled = np.array(numbers, np.int64).reshape(-1)
    outside = np.arange(shuffled.size)
    while outside.size:
        left, right = np.divmod(shuffled[outside], right_base)
        for left_key, right_key in zip(round_keys[::2], round_keys[1::2], strict=True):
            left = (
                left + hash.below(hash.fold(left_key, right.astype(np.uint32)), left_base)
            ) % left_base
            right = (
                right + hash.below(hash.fold(right_key, left.astype(np.uint32)), right_base)
            ) % right_base
        shuffled[outside] = left * right_base + right
        outside = outside[shuffled[outside] >= count]
    return shuffled.reshape(np.shape(numbers))

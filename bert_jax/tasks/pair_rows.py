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

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from bert_jax import prng
from bert_jax.data.dataset import draw_key
from bert_jax.data.row_index import Indexes, digest, index_directory
from bert_jax.data.store import SPLITS, Split, Store
from bert_jax.errors import BadInput

COLUMNS = 3
VERSION = 4  # of the algorithm; part of the digest in the names of index files
BLOCK = 1 << 19  # sentences processed at a time; a document is never split, however long it is
HALF = np.uint32(1 << 31)
LONGEST = (1 << 16) - 1  # tokens of A or B: a length has 16 bits in the index


class Rules(NamedTuple):
    """The settings that decide the rows of any split and epoch."""

    seed: int
    phase: int  # index in config.phase_order
    length: int  # tokens per row, with [CLS] and [SEP]
    pair_task: str  # nsp, sop or none
    short_rate: float  # share of documents with a short random target length


class Rows(NamedTuple):
    """Token ranges of A and B in the split, and the label; int64[R] each."""

    a_start: np.ndarray
    a_length: np.ndarray
    b_start: np.ndarray
    b_length: np.ndarray
    label: np.ndarray  # nsp: 1 if B is random; sop: 1 if A and B are swapped


class Block(NamedTuple):
    """Some whole documents in an epoch. Sentences and documents are numbered from 0 in the block."""

    split: Split
    rules: Rules
    epoch: int
    documents: np.ndarray  # uint32[D] document numbers in the split
    begins: np.ndarray  # int64[S] where each sentence begins in the split's tokens
    ends: np.ndarray  # int64[S] where each sentence ends
    owner: np.ndarray  # int64[S] the document of each sentence
    firsts: np.ndarray  # int64[D] the first sentence of each document
    lasts: np.ndarray  # int64[D] the last sentence of each document


class Chunks(NamedTuple):
    """Chunks of sentences; arrays of equal length."""

    start: np.ndarray  # first sentence, in the block
    size: np.ndarray  # number of sentences
    a_size: np.ndarray  # number of sentences in A
    random: np.ndarray  # bool: B is from another document


def count_special_tokens(pairs: str) -> int:
    """Returns the number of special tokens of a pair: [CLS], and [SEP] after each of its segments."""
    return 2 if pairs == "none" else 3


def room_for_tokens(rules: Rules) -> int:
    """Returns the maximum number of tokens of A and B together."""
    return rules.length - count_special_tokens(rules.pair_task)


def check_rules(split: Split, rules: Rules) -> None:
    """Raises BadInput if no rows can be made from the split."""
    if rules.length > LONGEST:
        raise BadInput(f"length {rules.length}: must be at most {LONGEST}")
    documents, needed = len(split.document_ends), 1 if rules.pair_task == "none" else 2
    if documents < needed:
        raise BadInput(
            f"{split.path}: {documents} documents, pair_task={rules.pair_task} needs {needed} or more"
        )


def pack(rows: Rows) -> np.ndarray:
    """Packs rows into an index, int64[R, 3]: starts of A and B, and both lengths and the label in one number."""
    sizes = rows.a_length | rows.b_length << 16 | rows.label << 32
    return np.stack([rows.a_start, rows.b_start, sizes], axis=1)


def unpack(index: np.ndarray) -> Rows:
    """Inverts `pack`: int64[..., 3] -> Rows of int64[...]."""
    a_start, b_start, sizes = np.moveaxis(index, -1, 0)
    return Rows(a_start, sizes & LONGEST, b_start, sizes >> 16 & LONGEST, sizes >> 32)


def are_valid(rows: Rows, used: np.ndarray, tokens: int) -> bool:
    """Returns whether every used row is valid. used: bool, shaped like the fields of rows. tokens: of the split."""
    bad = used & (rows.a_length < 1) | (rows.label < 0) | (rows.label > 1)
    for start, length in ((rows.a_start, rows.a_length), (rows.b_start, rows.b_length)):
        bad |= (start < 0) | (start + length > tokens)
    return not bad.any()


def indexes(store: Store, split: str, rules: Rules) -> Indexes:
    """Returns the index files of the sentence pairs of one split under one set of rules."""
    name = f"{split}-{rules.length}-{digest(store, VERSION, rules)}"
    parts = partial(build, store.splits[split], rules)
    return Indexes(index_directory(store.path), name, np.int64, COLUMNS, parts)


def build(split: Split, rules: Rules, epoch: int) -> Iterator[np.ndarray]:
    """Yields the index of an epoch in document order, in parts int64[r, 3]."""
    for block in blocks(split, rules, epoch):
        yield pack(make_rows(block, find_chunks(block)))


def blocks(split: Split, rules: Rules, epoch: int) -> Iterator[Block]:
    """Yields blocks of about BLOCK sentences that cover all documents."""
    for documents in document_ranges(split):
        yield open_block(split, rules, epoch, documents)


def document_ranges(split: Split) -> Iterator[np.ndarray]:
    """Yields the numbers of consecutive documents, int64[D], with about BLOCK sentences at a time."""
    first = 0
    while first < len(split.document_ends):
        after = documents_end(split, first, BLOCK)
        yield np.arange(first, after)
        first = after


def documents_end(split: Split, first: int, sentences: int) -> int:
    """Returns the end of the longest range of documents from `first` that has at most `sentences`; at least one."""
    begin, _ = spans(split.document_ends, first)
    return max(first + 1, int(np.searchsorted(split.document_ends, begin + sentences, "right")))


def spans(ends: np.ndarray, numbers) -> tuple[np.ndarray, np.ndarray]:
    """Returns where the items of these numbers begin and end. ends: where each source, document or sentence ends."""
    ends = np.asarray(ends)
    return np.where(numbers > 0, ends[numbers - 1], 0), ends[numbers]


def sample(split: Split, rules: Rules, parts: int, sentences: int) -> Rows:
    """Returns rows of epoch 0 from `parts` evenly spread ranges of documents, of about `sentences` sentences each."""
    firsts = np.linspace(0, len(split.document_ends), parts, endpoint=False, dtype=np.int64)
    documents = [np.arange(first, documents_end(split, first, sentences)) for first in firsts]
    block = open_block(split, rules, 0, np.unique(np.concatenate(documents)))
    return make_rows(block, find_chunks(block))


def open_block(split: Split, rules: Rules, epoch: int, documents: np.ndarray) -> Block:
    """Returns the block of these documents, int64[D], ascending."""
    begin, end = spans(split.document_ends, documents)
    after = np.cumsum(end - begin)
    firsts = after - (end - begin)
    owner = np.repeat(np.arange(len(documents)), end - begin)
    sentences = spans(split.sentence_ends, np.arange(len(owner)) + (begin - firsts)[owner])
    documents = documents.astype(np.uint32)
    return Block(split, rules, epoch, documents, *sentences, owner, firsts, after - 1)


def find_chunks(block: Block) -> Chunks:
    """Returns the chunks of a block, in order: those reached from the first sentence of each document."""
    possible, following = every_chunk(block)
    reached = np.zeros(len(following), bool)
    current = block.firsts
    while current.size:  # one chunk of every document at a time
        reached[current] = True
        current = following[current]
        current = current[current >= 0]
    return Chunks(*(field[reached] for field in possible))


def every_chunk(block: Block) -> tuple[Chunks, np.ndarray]:
    """Returns the chunk that would start at every sentence, and the start of the next chunk; -1 at a document's end."""
    start = np.arange(len(block.ends))
    goal = block.begins + target_lengths(block)[block.owner]
    last = np.minimum(np.searchsorted(block.ends, goal), block.lasts[block.owner])
    size = last - start + 1
    if block.rules.pair_task == "none":
        a_size, random = size, np.zeros(len(start), bool)
    else:
        draw = drawer(block, start)
        a_size = 1 + prng.below(draw("sentences_in_a"), np.maximum(size - 1, 1))
        random = size == 1
        if block.rules.pair_task == "nsp":
            random |= draw("random_pair") < HALF
    following = start + np.where(random, a_size, size)  # unused sentences are put back
    following[following > block.lasts[block.owner]] = -1
    return Chunks(start, size, a_size, random), following


def target_lengths(block: Block) -> np.ndarray:
    """Returns int64[D]: the target length of each document's chunks, in tokens.

    It is a full row or, with probability `short_rate`, a random length from 2 to a full row.
    """
    room = room_for_tokens(block.rules)
    key = prng.fold(block_key(block, "target_length"), block.documents)
    short = prng.uniform(prng.fold(key, np.uint32(0))) < block.rules.short_rate
    return np.where(short, 2 + prng.below(prng.fold(key, np.uint32(1)), room - 1), room)


def make_rows(block: Block, chunks: Chunks) -> Rows:
    """Returns the rows of chunks: draws random and swapped pairs, and truncates A and B to fit."""
    draw, pairs = drawer(block, chunks.start), block.rules.pair_task
    a_begin, a_end = block.begins[chunks.start], block.ends[chunks.start + chunks.a_size - 1]
    b_begin, b_end = a_end.copy(), block.ends[chunks.start + chunks.size - 1]
    label = chunks.random
    if pairs != "none":
        draw_random_b(block, chunks, a_end - a_begin, b_begin, b_end)
    if pairs == "sop":
        swap = ~chunks.random & (draw("swap") < HALF)
        a_begin, b_begin = np.where(swap, b_begin, a_begin), np.where(swap, a_begin, b_begin)
        a_end, b_end = np.where(swap, b_end, a_end), np.where(swap, a_end, b_end)
        label = chunks.random | swap
    room = room_for_tokens(block.rules)
    a_length, b_length = truncated_lengths(a_end - a_begin, b_end - b_begin, room)
    bits = draw("truncate")
    a_start = a_begin + fair_coins(prng.fold(bits, np.uint32(0)), a_end - a_begin - a_length)
    b_start = b_begin + fair_coins(prng.fold(bits, np.uint32(1)), b_end - b_begin - b_length)
    return Rows(a_start, a_length, b_start, b_length, label.astype(np.int64))


def draw_random_b(block: Block, chunks: Chunks, a_length, b_begin, b_end) -> None:
    """Draws B for the chunks with a random B, and writes its token range into `b_begin` and `b_end`."""
    where = np.flatnonzero(chunks.random)
    start, split = chunks.start[where], block.split
    draw, owner = drawer(block, start), block.owner[start]
    other = other_documents(split, block.documents[owner].astype(int), draw("random_document"))
    first, after = spans(split.document_ends, other)
    sentence = first + prng.below(draw("random_start"), after - first)
    wanted = target_lengths(block)[owner] - a_length[where]
    b_begin[where], b_end[where] = sentences_from(split, sentence, after, wanted)


def other_documents(split: Split, own: np.ndarray, bits: np.ndarray) -> np.ndarray:
    """Returns int64[N]: for each document another document of its source, uniformly drawn.

    If the source has only one document, draws from the whole split. Drawing from the same source matters for corpora in
    several languages: there, a B in another language than A would give away the label.
    """
    source = np.searchsorted(split.source_ends, own, side="right")
    first, after = spans(split.source_ends, source)
    alone = after - first == 1
    first, after = np.where(alone, 0, first), np.where(alone, len(split.document_ends), after)
    other = first + prng.below(bits, after - first - 1)
    return other + (other >= own)


def sentences_from(split, sentence, after, wanted) -> tuple[np.ndarray, np.ndarray]:
    """Returns the token range, int64[N] each, of whole sentences from `sentence` on with at least `wanted` tokens.

    It has at least one sentence. It ends before sentence `after`, even if it has fewer tokens.
    """
    begin, end = spans(split.sentence_ends, sentence)
    todo, last = np.arange(len(sentence)), sentence.copy()
    while todo.size:  # reads fewer pages of the file than a binary search would
        is_short = (end[todo] - begin[todo] < wanted[todo]) & (last[todo] + 1 < after[todo])
        todo = todo[is_short]
        last[todo] += 1
        end[todo] = split.sentence_ends[last[todo]]
    return begin, end


def truncated_lengths(a: np.ndarray, b: np.ndarray, room: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the lengths after removing tokens from the longer of the two, or from B if equal, until both fit."""
    most_a, most_b = np.maximum(room - b, (room + 1) // 2), np.maximum(room - a, room // 2)
    return np.minimum(a, most_a), np.minimum(b, most_b)


def fair_coins(keys: np.ndarray, tosses: np.ndarray) -> np.ndarray:
    """Returns int64[R]: the number of heads in `tosses` fair coin tosses, which is how many tokens the front loses.

    Up to 1024 tosses are drawn one by one. For more, the heads of 1024 tosses are scaled to the right mean and
    variance, so that a sentence of a million tokens costs no more.
    """
    few = np.minimum(tosses, 1024)
    heads = np.zeros(len(tosses), np.int64)
    for word in range(-(-few.max(initial=0) // 32)):
        more = np.flatnonzero(few > 32 * word)
        unused = np.maximum(32 * (word + 1) - few[more], 0).astype(np.uint32)
        heads[more] += np.bitwise_count(prng.fold(keys[more], np.uint32(word)) >> unused)
    stretched = tosses / 2 + (heads - 512) * np.sqrt(tosses / 1024)
    return np.where(tosses > 1024, np.rint(stretched).astype(np.int64).clip(0, tosses), heads)


def drawer(block: Block, start: np.ndarray) -> Callable[[str], np.ndarray]:
    """Returns a function (purpose) -> uint32 bits for each chunk, keyed by its document and first sentence."""
    owner = block.owner[start]
    sentence = (start - block.firsts[owner]).astype(np.uint32)

    def draw(purpose: str) -> np.ndarray:
        return prng.fold(prng.fold(block_key(block, purpose), block.documents)[owner], sentence)

    return draw


def block_key(block: Block, purpose: str) -> np.ndarray:
    """Returns the key, uint32[1], of a purpose in the block's epoch."""
    return purpose_key(block.split, block.rules, block.epoch, purpose)


def purpose_key(split: Split, rules: Rules, epoch: int, purpose: str) -> np.ndarray:
    """Returns the key, uint32[1], of a purpose in an epoch of a split, see dataset.draw_key."""
    return draw_key(rules.seed, purpose, SPLITS.index(split.path.name), rules.phase, epoch)

"""The rows of an epoch, (split, rules, epoch) -> index: sentence pairs or full sentences.

Rows are made the way the original create_pretraining_data does it (FACTS, "Data"): whole sentences
gather into a chunk up to the document's target length, A is the chunk up to a random sentence, B
the rest of the chunk or a piece of another document, and sentences that a random B leaves unused go
into the next chunk. Here B comes from all documents of A's source and never from A's own.

Every draw is a hash of (seed, phase, epoch, document, first sentence of the chunk), so where
the next chunk starts is a function of where this one does. It is computed for all sentences at once;
what the first sentence of a document leads to are the chunks. NumPy, pure. An index is int64[R, 3]: where A
starts in tokens, where B starts, and lengths and label in one number.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from bert_jax import prng
from bert_jax.data.store import SPLITS, Split
from bert_jax.errors import BadInput

PAIRS = ("nsp", "sop", "none")
COLUMNS = 3
BLOCK = 1 << 19  # sentences at a time; one document is never parted, however long it is
HALF = np.uint32(1 << 31)
LONGEST = (1 << 16) - 1  # tokens of A or B that fit into their 16 bits


class Rules(NamedTuple):
    """How rows are made, of any split and in any epoch."""

    seed: int
    phase: int  # number of the phase in the run
    length: int  # tokens a row, with [CLS] and [SEP]
    pair_task: str  # nsp, sop or none
    short_rate: float  # share of documents with a short random target length


class Rows(NamedTuple):
    """Token ranges of the two sentences, and the label; int64[R] each."""

    a_start: np.ndarray
    a_length: np.ndarray
    b_start: np.ndarray
    b_length: np.ndarray
    label: np.ndarray  # nsp: 1 if B is random; sop: 1 if A and B are swapped


class Block(NamedTuple):
    """Some whole documents in an epoch; sentences and documents counted from the block's first."""

    split: Split
    rules: Rules
    epoch: int
    documents: np.ndarray  # uint32[D] their numbers in the split
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


def room_for_tokens(rules: Rules) -> int:
    """Of A and B together."""
    return rules.length - special_pieces(rules.pair_task)


def check_rules(split: Split, rules: Rules) -> None:
    """Raises BadInput if no rows can be made."""
    if rules.length > LONGEST:
        raise BadInput(f"length {rules.length}: must be at most {LONGEST}")
    documents, needed = len(split.document_ends), 1 if rules.pair_task == "none" else 2
    if documents < needed:
        raise BadInput(
            f"{split.path}: {documents} documents, pairs {rules.pair_task!r} needs at least {needed}"
        )


def pack(rows: Rows) -> np.ndarray:
    """Rows -> int64[R, 3]."""
    sizes = rows.a_length | rows.b_length << 16 | rows.label << 32
    return np.stack([rows.a_start, rows.b_start, sizes], axis=1)


def unpack(index: np.ndarray) -> Rows:
    """The inverse of `pack`: int64[..., 3] -> rows of int64[...]."""
    a_start, b_start, sizes = np.moveaxis(index, -1, 0)
    return Rows(a_start, sizes & LONGEST, b_start, sizes >> 16 & LONGEST, sizes >> 32)


def are_sound(rows: Rows, used: np.ndarray, tokens: int) -> bool:
    """Whether every row that is used, bool like one of their arrays, lies within so many tokens."""
    bad = used & (rows.a_length < 1) | (rows.label < 0) | (rows.label > 1)
    for start, length in ((rows.a_start, rows.a_length), (rows.b_start, rows.b_length)):
        bad |= (start < 0) | (start + length > tokens)
    return not bad.any()


def build(split: Split, rules: Rules, epoch: int) -> Iterator[np.ndarray]:
    """The index of an epoch in document order, in parts int64[r, 3]."""
    for block in blocks(split, rules, epoch):
        yield pack(make_rows(block, find_chunks(block)))


def blocks(split: Split, rules: Rules, epoch: int) -> Iterator[Block]:
    """All documents."""
    first = 0
    while first < len(split.document_ends):
        after = documents_end(split, first, BLOCK)
        yield open_block(split, rules, epoch, np.arange(first, after))
        first = after


def documents_end(split: Split, first: int, sentences: int) -> int:
    """Where the documents end, at least one, that begin with `first` and have at most so many sentences."""
    begin, _ = spans(split.document_ends, first)
    return max(first + 1, int(np.searchsorted(split.document_ends, begin + sentences, "right")))


def spans(ends: np.ndarray, numbers) -> tuple[np.ndarray, np.ndarray]:
    """Where sources, documents or sentences of these numbers begin and end, of which `ends` has all ends."""
    ends = np.asarray(ends)
    return np.where(numbers > 0, ends[numbers - 1], 0), ends[numbers]


def sample(split: Split, rules: Rules, parts: int, sentences: int) -> Rows:
    """Rows of epoch 0 from `parts` places spread evenly over the documents, of about as many sentences each."""
    firsts = np.linspace(0, len(split.document_ends), parts, endpoint=False, dtype=np.int64)
    documents = [np.arange(first, documents_end(split, first, sentences)) for first in firsts]
    block = open_block(split, rules, 0, np.unique(np.concatenate(documents)))
    return make_rows(block, find_chunks(block))


def open_block(split: Split, rules: Rules, epoch: int, documents: np.ndarray) -> Block:
    """The sentences of these documents, int64[D], ascending."""
    begin, end = spans(split.document_ends, documents)
    after = np.cumsum(end - begin)
    firsts = after - (end - begin)
    owner = np.repeat(np.arange(len(documents)), end - begin)
    sentences = spans(split.sentence_ends, np.arange(len(owner)) + (begin - firsts)[owner])
    documents = documents.astype(np.uint32)
    return Block(split, rules, epoch, documents, *sentences, owner, firsts, after - 1)


def find_chunks(block: Block) -> Chunks:
    """The chunks of a block, in order: those that its documents' first sentences lead to."""
    possible, following = every_chunk(block)
    reached = np.zeros(len(following), bool)
    here = block.firsts
    while here.size:  # all documents in lock step
        reached[here] = True
        here = following[here]
        here = here[here >= 0]
    return Chunks(*(field[reached] for field in possible))


def every_chunk(block: Block) -> tuple[Chunks, np.ndarray]:
    """For every sentence the chunk that would start there, and where the next would; -1 after a
    document."""
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
    """int64[D]: what a document's chunks grow to: a full row or, with `short_rate`, anything from 2
    tokens."""
    room = room_for_tokens(block.rules)
    key = prng.fold(block_key(block, "target_length"), block.documents)
    short = prng.uniform(prng.fold(key, np.uint32(0))) < block.rules.short_rate
    return np.where(short, 2 + prng.below(prng.fold(key, np.uint32(1)), room - 1), room)


def make_rows(block: Block, chunks: Chunks) -> Rows:
    draw, pairs = drawer(block, chunks.start), block.rules.pair_task
    a_begin, a_end = block.begins[chunks.start], block.ends[chunks.start + chunks.a_size - 1]
    b_begin, b_end = a_end.copy(), block.ends[chunks.start + chunks.size - 1]
    label = chunks.random
    if pairs != "none":
        fill_random(block, chunks, a_end - a_begin, b_begin, b_end)
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


def fill_random(block: Block, chunks: Chunks, a_length, b_begin, b_end) -> None:
    """Writes where the random B of the random chunks lies into `b_begin` and `b_end`."""
    where = np.flatnonzero(chunks.random)
    start, split = chunks.start[where], block.split
    draw, owner = drawer(block, start), block.owner[start]
    other = other_documents(split, block.documents[owner].astype(int), draw("random_document"))
    first, after = spans(split.document_ends, other)
    sentence = first + prng.below(draw("random_start"), after - first)
    wanted = target_lengths(block)[owner] - a_length[where]
    b_begin[where], b_end[where] = sentences_from(split, sentence, after, wanted)


def other_documents(split: Split, own: np.ndarray, bits: np.ndarray) -> np.ndarray:
    """int64[N]: for each document another one of its source, or of the split where the source has
    only this one; each as likely. In several languages a B of another one would tell the label."""
    source = np.searchsorted(split.source_ends, own, side="right")
    first, after = spans(split.source_ends, source)
    alone = after - first == 1
    first, after = np.where(alone, 0, first), np.where(alone, len(split.document_ends), after)
    other = first + prng.below(bits, after - first - 1)
    return other + (other >= own)


def sentences_from(split, sentence, after, wanted) -> tuple[np.ndarray, np.ndarray]:
    """Where in tokens `sentence` begins, and where the sentences end that make up `wanted` tokens
    from there, or the last one before `after`; at least one. int64[N] each."""
    begin, end = spans(split.sentence_ends, sentence)
    going, last = np.arange(len(sentence)), sentence.copy()
    while going.size:  # sentence by sentence: far fewer than a search in the whole file would read
        is_short = (end[going] - begin[going] < wanted[going]) & (last[going] + 1 < after[going])
        going = going[is_short]
        last[going] += 1
        end[going] = split.sentence_ends[last[going]]
    return begin, end


def truncated_lengths(a: np.ndarray, b: np.ndarray, room: int) -> tuple[np.ndarray, np.ndarray]:
    """Lengths after popping from the longer of the two, from B where they are equal, until both
    fit."""
    most_a, most_b = np.maximum(room - b, (room + 1) // 2), np.maximum(room - a, room // 2)
    return np.minimum(a, most_a), np.minimum(b, most_b)


def fair_coins(keys: np.ndarray, tosses: np.ndarray) -> np.ndarray:
    """int64[R]: how many of `tosses` fair coins show heads: the tokens popped from the front.

    Up to 1024 tosses are tossed one by one. For more, the heads among 1024 are stretched to the
    mean and variance of as many, so that a sentence of a million tokens costs no more.
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
    """purpose -> uint32 bits for each chunk, from its document and its first sentence's number in
    the document."""
    owner = block.owner[start]
    sentence = (start - block.firsts[owner]).astype(np.uint32)

    def draw(purpose: str) -> np.ndarray:
        return prng.fold(prng.fold(block_key(block, purpose), block.documents)[owner], sentence)

    return draw


def block_key(block: Block, purpose: str) -> np.ndarray:
    return purpose_key(block.split, block.rules, block.epoch, purpose)


def purpose_key(split: Split, rules: Rules, epoch: int, purpose: str) -> np.ndarray:
    """uint32[1]; an array because NumPy warns where scalars overflow."""
    number = SPLITS.index(split.path.name)
    numbers = (rules.seed, prng.PURPOSE[purpose], number, rules.phase, epoch)
    return np.full(1, prng.key(*numbers))

"""The rows of an epoch, (split, rules, epoch) -> index: sentence pairs or full sentences.

Rows are made the way the original create_pretraining_data does it (FACTS, "Data"): whole sentences
gather into a chunk up to the document's target length, A is the chunk up to a random sentence, B
the rest of the chunk or a piece of another document, and sentences that a random B leaves unused go
into the next chunk. Here B comes from all documents of A's source and never from A's own.

A document of a source of weight 2.5 is used twice an epoch, and in half of the epochs once more.
Each use is a copy that is cut into rows by draws of its own.

Every draw is a hash of (seed, phase, epoch, copy, document, first sentence of the chunk), so where
the next chunk starts is a function of where this one does. It is computed for all sentences at once;
what the first sentence of a document leads to are the chunks. NumPy, pure. An index is int64[R, 3]: where A
starts in tokens, where B starts, and lengths and label in one number.
"""

import math
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
    pairs: str  # nsp, sop or none
    short_rate: float  # share of documents with a short random target length
    weights: tuple[float, ...] = ()  # times that each source is read in an epoch; () is once


class Rows(NamedTuple):
    """Token ranges of the two sentences, and the label; int64[R] each."""

    a_start: np.ndarray
    a_length: np.ndarray
    b_start: np.ndarray
    b_length: np.ndarray
    label: np.ndarray  # nsp: 1 if B is random; sop: 1 if A and B are swapped


class Block(NamedTuple):
    """Some whole documents; sentences and documents counted from the block's first."""

    copy: int  # 0 the first use of these documents in the epoch, 1 the second, ...
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


def check_rules(split: Split, rules: Rules) -> None:
    """Raises BadInput if no rows can be made."""
    if rules.length > LONGEST:
        raise BadInput(f"length {rules.length}: must be at most {LONGEST}")
    documents, needed = len(split.document_ends), 1 if rules.pairs == "none" else 2
    if documents < needed:
        raise BadInput(
            f"{split.path}: {documents} documents, pairs {rules.pairs!r} needs at least {needed}"
        )
    check_weights(split, rules)


def check_weights(split: Split, rules: Rules) -> None:
    weights, sources = rules.weights, len(split.source_ends)
    if not weights:
        return
    if len(weights) != sources or not all(0 < weight < math.inf for weight in weights):
        raise BadInput(
            f"config.corpus.weights={weights}: expected a number over 0 for each of {sources} sources"
        )
    uses = np.diff(split.source_ends, prepend=0) * np.asarray(weights)
    if max(uses) < 1:
        raise BadInput(
            f"config.corpus.weights={weights}: an epoch would use no document of {split.path}; raise the weights, of"
            " which only the ratio matters in a run of many epochs"
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


def are_sound(index: np.ndarray, tokens: int) -> bool:
    """Whether every row lies within so many tokens."""
    part = unpack(index)
    bad = (part.a_length < 1) | (part.a_start < 0) | (part.a_start + part.a_length > tokens)
    bad |= (part.b_length < 0) | (part.b_start < 0) | (part.b_start + part.b_length > tokens)
    return not (bad | (part.label < 0) | (part.label > 1)).any()


def build(
    split: Split, rules: Rules, epoch: int, cancelled: Callable[[], bool] = lambda: False
) -> Iterator[np.ndarray]:
    """The index of an epoch in document order, in parts int64[r, 3]; ends early once `cancelled`."""
    for block in blocks(split, rules, epoch):
        if cancelled():
            return
        yield pack(make_rows(split, rules, epoch, block, find_chunks(split, rules, epoch, block)))


def blocks(split: Split, rules: Rules, epoch: int) -> Iterator[Block]:
    """All documents, each as often as the epoch uses it."""
    ends = split.document_ends
    first = 0
    while first < len(ends):
        begin = int(ends[first - 1]) if first else 0
        after = max(first + 1, int(np.searchsorted(ends, begin + BLOCK, side="right")))
        block = open_block(split, first, after, begin)
        number = uses(split, rules, epoch, block.documents)
        for copy in range(number.max()):
            yield choose(block, copy, number > copy)
        first = after


def uses(split: Split, rules: Rules, epoch: int, documents: np.ndarray) -> np.ndarray:
    """int64[D]: how often an epoch uses these documents, uint32[D].

    With weight w a document has been used floor(e w + u) times before epoch e. Its u is its place in a random order of
    the source's documents, so that an epoch uses a share of w of them, rounded, and each of them as often as any other.
    """
    if not rules.weights:
        return np.ones(len(documents), np.int64)
    result = np.zeros(len(documents), np.int64)
    key, first = purpose_key(split, rules, 0, "copies"), 0
    for weight, after in zip(rules.weights, split.source_ends, strict=True):
        here = np.flatnonzero((documents >= first) & (documents < after))
        if here.size:
            place = prng.shuffle(documents[here].astype(np.int64) - first, int(after - first), key)
            before = epoch * weight + (place + 0.5) / (after - first)
            result[here] = np.floor(before + weight) - np.floor(before)
        first = int(after)
    return result


def sample(split: Split, rules: Rules, parts: int, sentences: int) -> Rows:
    """Rows of epoch 0 from `parts` places spread evenly over the documents, of about as many sentences each; of all
    documents if they have no more. Every document is used once, whatever the weights."""
    ends, rules = split.document_ends, rules._replace(weights=())
    if ends[-1] <= parts * sentences:
        return unpack(np.concatenate(list(build(split, rules, 0))))
    made = []
    for first in np.linspace(0, len(ends), parts, endpoint=False, dtype=np.int64):
        begin = int(ends[first - 1]) if first else 0
        after = max(first + 1, int(np.searchsorted(ends, begin + sentences, side="right")))
        block = open_block(split, int(first), int(after), begin)
        made.append(make_rows(split, rules, 0, block, find_chunks(split, rules, 0, block)))
    return Rows(*map(np.concatenate, zip(*made, strict=True)))


def open_block(split: Split, first: int, after: int, begin: int) -> Block:
    """Documents first..after-1, whose first sentence is `begin`."""
    document_ends = np.asarray(split.document_ends[first:after]) - begin
    firsts = np.concatenate([[0], document_ends[:-1]])
    ends = np.array(split.sentence_ends[begin : begin + int(document_ends[-1])])
    begins = np.concatenate([[split.sentence_ends[begin - 1] if begin else 0], ends[:-1]])
    owner = np.repeat(np.arange(after - first), document_ends - firsts)
    documents = np.arange(first, after).astype(np.uint32)
    return Block(0, documents, begins, ends, owner, firsts, document_ends - 1)


def choose(block: Block, copy: int, chosen: np.ndarray) -> Block:
    """The `chosen` documents of a block, bool[D], as their `copy`."""
    if chosen.all():
        return block._replace(copy=copy)
    sentences = chosen[block.owner]
    sizes = (block.lasts - block.firsts + 1)[chosen]
    after = np.cumsum(sizes)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    begins, ends = block.begins[sentences], block.ends[sentences]
    return Block(copy, block.documents[chosen], begins, ends, owner, after - sizes, after - 1)


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
        a_size = 1 + prng.below(draw("sentences_in_a"), np.maximum(size - 1, 1))
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
    key = purpose_key(split, rules, epoch, "target_length", block.copy)
    key = prng.fold(key, block.documents)
    short = prng.uniform(prng.fold(key, np.uint32(0))) < rules.short_rate
    return np.where(short, 2 + prng.below(prng.fold(key, np.uint32(1)), room - 1), room)


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
    a_start = a_begin + fair_coins(prng.fold(bits, np.uint32(0)), a_end - a_begin - a_length)
    b_start = b_begin + fair_coins(prng.fold(bits, np.uint32(1)), b_end - b_begin - b_length)
    return Rows(a_start, a_length, b_start, b_length, label.astype(np.int64))


def fill_random(split, rules, epoch, block, chunks, a_length, b_begin, b_end) -> None:
    """Writes where the random B of the random chunks lies into `b_begin` and `b_end`."""
    where = np.flatnonzero(chunks.random)
    start = chunks.start[where]
    draw = drawer(split, rules, epoch, block, start)
    own = block.documents[block.owner[start]].astype(np.int64)
    other = other_documents(split, own, draw("random_document"))
    first = np.where(other > 0, split.document_ends[other - 1], 0)
    after = split.document_ends[other]
    sentence = first + prng.below(draw("random_start"), after - first)
    wanted = target_lengths(split, rules, epoch, block)[block.owner[start]] - a_length[where]
    b_begin[where], b_end[where] = sentences_from(split, sentence, after, wanted)


def other_documents(split: Split, own: np.ndarray, bits: np.ndarray) -> np.ndarray:
    """int64[N]: for each document another one of its source, or of the split where the source has
    only this one; each as likely. In several languages a B of another one would tell the label."""
    source = np.searchsorted(split.source_ends, own, side="right")
    first, after = np.concatenate([[0], split.source_ends[:-1]])[source], split.source_ends[source]
    alone = after - first == 1
    first, after = np.where(alone, 0, first), np.where(alone, len(split.document_ends), after)
    other = first + prng.below(bits, after - first - 1)
    return other + (other >= own)


def sentences_from(split, sentence, after, wanted) -> tuple[np.ndarray, np.ndarray]:
    """Where in tokens `sentence` begins, and where the sentences end that make up `wanted` tokens
    from there, or the last one before `after`; at least one. int64[N] each."""
    ends = split.sentence_ends
    begin = np.where(sentence > 0, ends[sentence - 1], 0)
    end = ends[sentence]
    going, last = np.arange(len(sentence)), sentence.copy()
    while going.size:  # sentence by sentence: far fewer than a search in the whole file would read
        going = going[
            (end[going] - begin[going] < wanted[going]) & (last[going] + 1 < after[going])
        ]
        last[going] += 1
        end[going] = ends[last[going]]
    return begin, end


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
        bits = prng.fold(keys[more], np.uint32(word)) >> unused.astype(np.uint32)
        heads[more] += np.bitwise_count(bits)
    stretched = tosses / 2 + (heads - 512) * np.sqrt(tosses / 1024)
    return np.where(tosses > 1024, np.rint(stretched).astype(np.int64).clip(0, tosses), heads)


def drawer(split, rules, epoch, block, start) -> Callable[[str], np.ndarray]:
    """purpose -> uint32 bits for each chunk, from its document and its first sentence's number in
    the document."""
    owner = block.owner[start]
    sentence = (start - block.firsts[owner]).astype(np.uint32)

    def draw(purpose: str) -> np.ndarray:
        key = purpose_key(split, rules, epoch, purpose, block.copy)
        return prng.fold(prng.fold(key, block.documents)[owner], sentence)

    return draw


def purpose_key(split: Split, rules: Rules, epoch: int, purpose: str, copy: int = 0) -> np.ndarray:
    """uint32[1]; an array because NumPy warns where scalars overflow."""
    number = SPLITS.index(split.path.name)
    numbers = (rules.seed, prng.PURPOSE[purpose], number, rules.phase, epoch)
    return np.full(1, prng.key(*numbers, *([copy] if copy else [])))

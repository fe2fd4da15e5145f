"""Text -> shards, in parallel and in order; what an earlier start has finished is not made again."""

import functools
import itertools
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert_jax import tokenizer as tokenizers
from bert_jax.data import corpus
from bert_jax.data import store as stores
from bert_jax.data.preparing import hashes, near, shards
from bert_jax.errors import BadInput

LOG_EVERY = 10.0  # seconds


class Place(NamedTuple):
    """Which shard: of which source, and its number there."""

    source: int
    number: int

    @property
    def name(self) -> str:
        return f"{self.source:03d}-{self.number:06d}.shard"


class Task(NamedTuple):
    """What a worker gets."""

    place: Place
    reading: corpus.Reading
    block: corpus.Block


class Encoded(NamedTuple):
    """What a worker makes of one block. Of its documents, sentences and pieces none is empty."""

    place: Place
    text: int  # CRC-32 of the block
    arrays: dict[str, np.ndarray]  # as in a shard
    counts: Counter  # bytes, documents, empty
    problems: Counter  # lines and documents dropped, by reason


class Vocabulary(NamedTuple):
    """A saved tokenizer: its directory, and the fingerprint that tells apart what lay at the same place."""

    directory: str
    fingerprint: str


@functools.lru_cache(maxsize=1)
def table(vocabulary: Vocabulary):
    """One a process, kept between blocks."""
    tokenizer = tokenizers.load(vocabulary.directory)
    return tokenizer.table(), stores.token_type(tokenizer.size)


def encode_block(vocabulary: Vocabulary, signatures: bool, task: Task) -> Encoded:
    """Runs in a worker: the documents of a block as ids."""
    problems = Counter()
    parsed = corpus.documents(task.block, task.reading, problems)
    words, kind = table(vocabulary)
    tokens, ends = words.encode([sentence for document in parsed for sentence in document])
    tokens = tokens.astype(kind)
    lengths = np.diff(ends, prepend=0)
    # A sentence of nothing but control characters has no pieces, and a document of such sentences
    # no sentences.
    sizes = np.array([len(document) for document in parsed], np.int64)
    owners = np.repeat(np.arange(len(parsed)), sizes)[lengths > 0]
    sentences = np.bincount(owners, minlength=len(parsed))
    documents, lengths = sentences[sentences > 0], lengths[lengths > 0]
    stops = np.cumsum(lengths)[np.cumsum(documents) - 1]
    arrays = {
        "tokens": tokens,
        "sentences": lengths.astype(np.uint32),
        "documents": documents.astype(np.uint32),
        "hashes": hashes.documents(tokens, stops),
        "sentence_hashes": hashes.sentences(tokens, lengths),
    }
    if signatures:
        arrays["signatures"] = near.signatures(tokens, stops)
    counts = Counter(
        bytes=sum(map(len, task.block)), documents=len(parsed), empty=int((sentences == 0).sum())
    )
    return Encoded(task.place, text_crc(task.block), arrays, counts, problems)


def text_crc(block: corpus.Block) -> int:
    return functools.reduce(lambda crc, text: zlib.crc32(text, crc), block, 0)


def encode(
    sources: list[corpus.Source],
    vocabulary: Vocabulary,
    signatures: bool,
    directory: Path,
    run: Callable,
    log: Callable,
) -> shards.Shards:
    """All documents in the order of the corpus, as shard files in `directory`; those that are there are kept.

    Raises BadInput where the text is not the one that a kept shard was made of.
    """
    directory.mkdir(exist_ok=True)
    for path in directory.glob("*.writing"):
        path.unlink()
    kept = len(list(directory.iterdir()))
    if kept:
        log(f"continues after {kept} shards")
    places, problems = [], Counter()
    tasks = unfinished(sources, vocabulary, directory, places, problems, log)
    function = functools.partial(encode_block, vocabulary, signatures)
    progress = Progress(log)
    results = map(progress.see, run(function, tasks))
    for place, blocks in itertools.groupby(results, key=lambda encoded: encoded.place):
        write(directory / place.name, vocabulary, list(blocks))
    found = shards.Shards()
    found.problems.update(problems)
    for place in places:
        found.append(directory / place.name, place.source, header_of(directory / place.name))
    return found


def unfinished(
    sources: list[corpus.Source],
    vocabulary: Vocabulary,
    directory: Path,
    places: list[Place],
    problems: Counter,
    log: Callable,
) -> Iterator[Task]:
    """The blocks of shards that are not there; `places` gets those of all shards."""
    for number, source in enumerate(sources):
        blocks = enumerate(source.blocks(problems))
        for part, group in itertools.groupby(blocks, key=lambda pair: pair[0] // shards.BLOCKS):
            place = Place(number, part)
            places.append(place)
            texts = finished(directory / place.name, vocabulary, log)
            if texts is None:
                yield from (Task(place, source.reading, block) for _, block in group)
            elif texts != [text_crc(block) for _, block in group]:
                raise BadInput(
                    f"{source.name}: the text has changed since prepare was killed; start it again"
                )


def finished(path: Path, vocabulary: Vocabulary, log: Callable) -> list[int] | None:
    """CRCs of the blocks that a whole shard of this vocabulary was made of."""
    try:
        _, header = shards.read(path)
    except FileNotFoundError:
        return None
    except shards.Damaged as error:
        log(f"{error}: made again")
        return None
    return header["texts"] if header["vocabulary"] == vocabulary.fingerprint else None


def header_of(path: Path) -> dict:
    return shards.read(path, [])[1]


def write(path: Path, vocabulary: Vocabulary, blocks: list[Encoded]) -> None:
    arrays = {
        name: np.concatenate([block.arrays[name] for block in blocks]) for name in blocks[0].arrays
    }
    header = {
        "vocabulary": vocabulary.fingerprint,
        "texts": [block.text for block in blocks],
        "kept": len(arrays["documents"]),
        "counts": sum((block.counts for block in blocks), Counter()),
        "problems": sum((block.problems for block in blocks), Counter()),
    }
    shards.write(path, arrays, header)


class Progress:
    """A log line every ten seconds."""

    def __init__(self, log: Callable):
        self.log, self.bytes = log, 0
        self.start = self.reported = time.monotonic()

    def see(self, encoded: Encoded) -> Encoded:
        self.bytes += encoded.counts["bytes"]
        now = time.monotonic()
        if now - self.reported > LOG_EVERY:
            self.reported = now
            megabytes = self.bytes / 1e6
            self.log(
                f"prepare: {megabytes:,.0f} MB of text, {megabytes / (now - self.start):.1f} MB/s"
            )
        return encoded

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

from bert_jax.data import corpus
from bert_jax.data import store as stores
from bert_jax.data.preparation import file_ranges, hashes, near, shards
from bert_jax.errors import BadInput
from bert_jax.tokenizers import tokenizer as tokenizers

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
    source: str  # its name
    reading: corpus.Reading
    blocks: list[file_ranges.Block]


class Encoded(NamedTuple):
    """What a worker makes of one block. Of its documents, sentences and pieces none is empty."""

    text: int  # CRC-32 of the block
    arrays: dict[str, np.ndarray]  # as in a shard
    counts: Counter  # bytes, documents, sentences, empty
    problems: Counter  # lines and documents dropped, by reason


class Done(NamedTuple):
    """What a worker tells of a shard that is on the disk."""

    header: dict
    made: int  # bytes of text that it was made of; 0 if it was there
    damage: str  # of the file that was there


class Vocabulary(NamedTuple):
    """A saved tokenizer: its directory, and the fingerprint that tells apart what lay at the same place."""

    directory: str
    fingerprint: str


@functools.lru_cache(maxsize=1)
def table(vocabulary: Vocabulary):
    """One a process, kept between blocks."""
    tokenizer = tokenizers.load(vocabulary.directory)
    return tokenizer.table(), stores.token_type(tokenizer.size)


def encode_shard(directory: Path, vocabulary: Vocabulary, signatures: bool, task: Task) -> Done:
    """Runs in a worker: sees to it that the shard is in the directory, and is of this text."""
    path = directory / task.place.name
    kept, damage = finished(path, vocabulary)
    texts = map(file_ranges.read, task.blocks)
    if kept is None:
        blocks = [encode_block(vocabulary, signatures, task.reading, text) for text in texts]
        header = write(path, vocabulary, blocks)
        return Done(header, header["counts"]["bytes"], damage)
    if kept["texts"] != [text_crc(text) for text in texts]:
        raise BadInput(
            f"{task.source}: the text has changed since prepare was killed; start it again"
        )
    return Done(kept, 0, damage)


def finished(path: Path, vocabulary: Vocabulary) -> tuple[dict | None, str]:
    """(the header of a whole shard of this vocabulary, what is wrong with the file that is there)."""
    try:
        _, header = shards.read(path)
    except FileNotFoundError:
        return None, ""
    except shards.Damaged as error:
        return None, str(error)
    return (header if header["vocabulary"] == vocabulary.fingerprint else None), ""


def encode_block(
    vocabulary: Vocabulary, signatures: bool, reading: corpus.Reading, block: corpus.Block
) -> Encoded:
    """The documents of a block as ids."""
    problems = Counter()
    parsed = corpus.documents(block, reading, problems)
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
        bytes=sum(map(len, block)),
        documents=len(parsed),
        sentences=len(lengths),
        empty=int((sentences == 0).sum()),
    )
    return Encoded(text_crc(block), arrays, counts, problems)


def text_crc(block: corpus.Block) -> int:
    return functools.reduce(lambda crc, text: zlib.crc32(text, crc), block, 0)


def write(path: Path, vocabulary: Vocabulary, blocks: list[Encoded]) -> dict:
    """Writes a shard; returns its header."""
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
    return header


def encode(
    texts: list[file_ranges.Texts],
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
    places, found, progress = [], shards.Shards(), Progress(log)
    function = functools.partial(encode_shard, directory, vocabulary, signatures)
    for number, done in enumerate(run(function, tasks(texts, places))):
        if done.damage:
            log(f"{done.damage}: made again")
        progress.see(done.made)
        found.append(directory / places[number].name, places[number].source, done.header)
    return found


def tasks(texts: list[file_ranges.Texts], places: list[Place]) -> Iterator[Task]:
    """`places` gets that of each."""
    for number, (source, blocks) in enumerate((one.source, one.blocks()) for one in texts):
        groups = itertools.groupby(enumerate(blocks), key=lambda pair: pair[0] // shards.BLOCKS)
        for part, group in groups:
            places.append(Place(number, part))
            yield Task(places[-1], source.name, source.reading, [block for _, block in group])


class Progress:
    """A log line every ten seconds."""

    def __init__(self, log: Callable):
        self.log, self.bytes = log, 0
        self.start, self.reported = time.monotonic(), None

    def see(self, size: int) -> None:
        """So many bytes more."""
        self.bytes += size
        now = time.monotonic()
        self.reported = self.reported or now  # Apache Beam's answers come all at once
        if now - self.reported > LOG_EVERY:
            self.reported = now
            megabytes = self.bytes / 1e6
            self.log(
                f"prepare: {megabytes:,.0f} MB of text, {megabytes / (now - self.start):.1f} MB/s"
            )

"""Text -> shards, in parallel and in order; what an earlier start has finished is not made again."""

import functools
import hashlib
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert_jax.data import corpus
from bert_jax.data import store as stores
from bert_jax.data.preparation import file_ranges, shards
from bert_jax.storage import atomic
from bert_jax.tokenizers import tokenizer as tokenizers

LOG_EVERY = 10.0  # seconds


class Task(NamedTuple):
    """What a worker gets."""

    shard: str  # name of the file
    source: int  # its number in the config
    reading: corpus.Reading
    blocks: list[file_ranges.Block]


class Done(NamedTuple):
    """What a worker tells of a shard that is on the disk."""

    shard: shards.Shard
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


def text_hash(document: list[str]) -> bytes:
    """BLAKE2b of a document's sentences, 16 bytes: copies are equal in it, whatever the vocabulary."""
    text = "\n".join(document).encode()
    return hashlib.blake2b(text, digest_size=16).digest()


def encode_shard(directory: Path, vocabulary: Vocabulary, task: Task) -> Done:
    """Runs in a worker: sees to it that the shard is in the directory."""
    path, damage = directory / task.shard, ""
    try:
        header, _ = shards.read(path, *shards.ARRAYS)
        if header["vocabulary"] == vocabulary.fingerprint:
            return Done(shards.Shard(path, task.source, header), 0, "")
    except FileNotFoundError:
        pass
    except shards.Damaged as error:
        damage = str(error)
    counts, problems, blocks = Counter(), Counter(), []
    for block in map(file_ranges.read, task.blocks):
        blocks.append(encode_block(vocabulary, task.reading, block, counts, problems))
    header = {"vocabulary": vocabulary.fingerprint, "counts": counts, "problems": problems}
    arrays = {name: np.concatenate([block[name] for block in blocks]) for name in shards.ARRAYS}
    shards.write(path, header, arrays)
    return Done(shards.Shard(path, task.source, header), counts["bytes"], damage)


def encode_block(
    vocabulary: Vocabulary,
    reading: corpus.Reading,
    block: corpus.Block,
    counts: Counter,
    problems: Counter,
) -> dict[str, np.ndarray]:
    """The arrays of a block's documents, as in a shard; adds to what is counted."""
    parsed = corpus.documents(block, reading, problems)
    words, kind = table(vocabulary)
    tokens, ends = words.encode([sentence for document in parsed for sentence in document])
    lengths = np.diff(ends, prepend=0)
    # A sentence of nothing but control characters has no pieces, and a document of such sentences no sentences.
    sizes = np.array([len(document) for document in parsed], np.int64)
    owners = np.repeat(np.arange(len(parsed)), sizes)[lengths > 0]
    sentences = np.bincount(owners, minlength=len(parsed))
    hashes = [text_hash(parsed[number]) for number in np.flatnonzero(sentences)]
    counts.update(
        bytes=sum(map(len, block)),
        documents=len(parsed),
        empty=int((sentences == 0).sum()),
    )
    return {
        "tokens": tokens.astype(kind),
        "sentences": lengths[lengths > 0].astype(np.uint32),
        "documents": sentences[sentences > 0].astype(np.uint32),
        "text_hashes": np.frombuffer(b"".join(hashes), "<u8").reshape(-1, 2),
    }


def encode(
    texts: list[file_ranges.Texts],
    vocabulary: Vocabulary,
    directory: Path,
    run: Callable,
    log: Callable,
) -> list[shards.Shard]:
    """All documents in the order of the corpus, as shard files in `directory`; those that are there are kept."""
    directory.mkdir(exist_ok=True)
    atomic.remove_left(directory)
    kept = len(list(directory.iterdir()))
    if kept:
        log(f"continues after {kept} shards")
    found, progress = [], Progress(log)
    for done in run(functools.partial(encode_shard, directory, vocabulary), tasks(texts)):
        if done.damage:
            log(f"{done.damage}: made again")
        progress.add(done.made)
        found.append(done.shard)
    return found


def tasks(texts: list[file_ranges.Texts]) -> Iterator[Task]:
    for source, of_source in enumerate(texts):
        blocks, number = of_source.blocks(), 0
        while group := list(itertools.islice(blocks, shards.BLOCKS)):
            name = f"{source:03d}-{number:06d}.npz"
            yield Task(name, source, of_source.source.reading, group)
            number += 1


class Progress:
    """A log line every ten seconds."""

    def __init__(self, log: Callable):
        self.log, self.bytes = log, 0
        self.start = self.reported = time.monotonic()

    def add(self, size: int) -> None:
        """So many bytes more."""
        self.bytes += size
        now = time.monotonic()
        if now - self.reported > LOG_EVERY:
            self.reported = now
            megabytes = self.bytes / 1e6
            self.log(
                f"prepare: {megabytes:,.0f} MB of text, {megabytes / (now - self.start):.1f} MB/s"
            )

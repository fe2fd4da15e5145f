"""Text -> shards, in parallel and in order; what an earlier start has finished is not made again."""

import functools
import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert_jax.data import corpus
from bert_jax.data import store as stores
from bert_jax.data.preparation.shards import Shard
from bert_jax.storage import atomic
from bert_jax.tokenizers import tokenizer as tokenizers

LOG_EVERY = 10.0  # seconds


class Task(NamedTuple):
    """What a worker gets."""

    shard: Shard
    reading: corpus.Reading
    block: corpus.Block


def encode(
    sources: list[corpus.Source],
    directory: Path,
    problems: Counter,
    run: Callable,
    log: Callable,
) -> list[Shard]:
    """All documents in the order of the corpus, as shard files in the workspace; those that are there are kept.

    `run` maps a function over tasks. What is no text in itself is counted in `problems`.
    """
    place = directory / "shards"
    place.mkdir(exist_ok=True)
    atomic.remove_temporary(place)
    if kept := len(list(place.iterdir())):
        log(f"continues after {kept} shards")
    shards, size, start = [], 0, time.monotonic()
    reported = start

    def missing() -> Iterator[Task]:
        for number, source in enumerate(sources):
            for count, block in enumerate(source.blocks(problems)):
                shard = Shard(place / f"{number:03d}-{count:08d}.npz", number)
                shards.append(shard)
                if not shard.path.exists():
                    yield Task(shard, source.reading, block)

    for made in run(functools.partial(encode_shard, directory / "vocabulary"), missing()):
        size, now = size + made, time.monotonic()
        if now - reported > LOG_EVERY:
            reported, megabytes = now, size / 1e6
            log(f"prepare: {megabytes:,.0f} MB of text, {megabytes / (now - start):.1f} MB/s")
    return shards


@functools.lru_cache(maxsize=1)
def table(vocabulary: Path):
    """One a process, kept between tasks. What lies at a place never changes: its name tells what decides its bits."""
    tokenizer = tokenizers.load(vocabulary)
    return tokenizer.table(), stores.token_type(tokenizer.size)


def encode_shard(vocabulary: Path, task: Task) -> int:
    """Runs in a worker: writes a shard; returns the bytes of its text."""
    problems = Counter()
    parsed = corpus.documents(task.block, task.reading, problems)
    words, kind = table(vocabulary)
    tokens, ends = words.encode([sentence for document in parsed for sentence in document])
    lengths = np.diff(ends, prepend=0)
    # A sentence of nothing but control characters has no pieces, and a document of such sentences no sentences.
    owners = np.repeat(np.arange(len(parsed)), np.array([*map(len, parsed)], np.int64))
    sentences = np.bincount(owners[lengths > 0], minlength=len(parsed))
    hashes = [text_hash(parsed[number]) for number in np.flatnonzero(sentences)]
    counts = {
        "bytes": sum(map(len, task.block)),
        "documents": len(parsed),
        "empty": int((sentences == 0).sum()),
    }
    arrays = {
        "tokens": tokens.astype(kind),
        "sentences": lengths[lengths > 0].astype(np.uint32),
        "documents": sentences[sentences > 0].astype(np.uint32),
        "text_hashes": np.frombuffer(b"".join(hashes), "<u8").reshape(-1, 2),
    }
    task.shard.write({"counts": counts, "problems": problems}, arrays)
    return counts["bytes"]


def text_hash(document: list[str]) -> bytes:
    """BLAKE2b of a document's sentences, 16 bytes: copies are equal in it, whatever the vocabulary."""
    text = "\n".join(document).encode()
    return hashlib.blake2b(text, digest_size=16).digest()

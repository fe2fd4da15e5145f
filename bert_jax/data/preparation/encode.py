"""Text -> shards, in parallel and in order. Shards that an earlier, interrupted run finished are reused."""

import functools
import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

import numpy as np

from bert_jax.data import corpus
from bert_jax.data import store as stores
from bert_jax.data.preparation.lost_text import count_lost
from bert_jax.data.preparation.shards import Shard
from bert_jax.storage import atomic
from bert_jax.tokenizers import tokenizer as tokenizers

LOG_EVERY = 10.0  # seconds


def encode(
    sources: list[corpus.Source], directory: Path, problems: Counter, run: Callable, log: Callable
) -> tuple[list[Shard], int]:
    """Encodes all documents into shard files in the workspace, in corpus order. Returns the shards, and the number of
    bytes of text that were encoded now.

    Reuses existing shard files. `run` maps a function over tasks. Input that cannot be split into texts is counted in
    `problems`, {reason: number}.
    """
    shards_directory = directory / "shards"
    shards_directory.mkdir(exist_ok=True)
    atomic.remove_temporary(shards_directory)
    if existing := len(list(shards_directory.iterdir())):
        log(f"prepare: resumes, {existing} shards are already encoded")
    shards, size, start = [], 0, time.monotonic()
    reported = start

    def missing() -> Iterator[tuple[Shard, corpus.Block]]:
        for number, source in enumerate(sources):
            for count, block in enumerate(source.blocks(problems)):
                shard = Shard(shards_directory / f"{number:03d}-{count:08d}.npz", number)
                shards.append(shard)
                if not shard.path.exists():
                    yield shard, block

    for encoded_bytes in run(functools.partial(encode_shard, directory / "vocabulary"), missing()):
        size, now = size + encoded_bytes, time.monotonic()
        if now - reported > LOG_EVERY:
            reported, megabytes = now, size / 1e6
            log(f"prepare: {megabytes:,.0f} MB of text, {megabytes / (now - start):.1f} MB/s")
    return shards, size


@functools.lru_cache(maxsize=1)
def load_encoder(vocabulary: Path):
    """Loads the tokenizer and its corpus encoder; cached in each process.

    The cache is safe: the workspace's name is a digest of everything that decides the vocabulary.
    """
    tokenizer = tokenizers.load(vocabulary)
    return tokenizer, tokenizer.corpus_encoder()


def encode_shard(vocabulary: Path, task: tuple[Shard, corpus.Block]) -> int:
    """Runs in a worker: writes a block's shard, and returns the number of bytes of its text."""
    shard, block = task
    problems = Counter()
    parsed = corpus.documents(block, problems)
    tokenizer, encode = load_encoder(vocabulary)
    tokens, ends = encode(parsed)
    lengths = np.diff(ends, prepend=0)
    # A sentence of control characters alone has no tokens. A document of such sentences counts as empty.
    sizes = np.array([*map(len, parsed)], np.int64)
    owners = np.repeat(np.arange(len(parsed)), sizes)
    sentences = np.bincount(owners[lengths > 0], minlength=len(parsed))
    counts = {
        "bytes": sum(map(len, block.texts)),
        "literal_unknown": sum(text.count(b"<unk>") for text in block.texts),
        "documents_read": len(parsed),
        "empty": int((sentences == 0).sum()),
        **count_lost([*chain(*parsed)], tokenizer),
    }
    arrays = {
        "tokens": tokens.astype(stores.token_type(tokenizer.size)),
        "sentences": lengths[lengths > 0].astype(np.uint32),
        "documents": sentences[sizes > 0].astype(np.uint32),
        "text_hashes": text_hashes(parsed),
    }
    shard.write({"counts": counts, "problems": problems}, arrays)
    return counts["bytes"]


def text_hashes(documents: list[list[str]]) -> np.ndarray:
    """Returns uint64[D, 2], the 16-byte BLAKE2b hashes of the documents that have sentences; they do not depend on the
    vocabulary."""
    texts = ("\n".join(document).encode() for document in documents if document)
    hashes = b"".join(hashlib.blake2b(text, digest_size=16).digest() for text in texts)
    return np.frombuffer(hashes, "<u8").reshape(-1, 2)


def with_hashes(block: corpus.Block) -> Iterator[tuple[list[int], list[str]]]:
    """Yields (hash as two integers, document) of the documents of a block that have sentences."""
    documents = corpus.documents(block, Counter())
    return zip(text_hashes(documents).tolist(), filter(None, documents), strict=True)

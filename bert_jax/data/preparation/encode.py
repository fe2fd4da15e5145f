"""Text -> shards, in parallel and in order. Shards that an earlier, interrupted run finished are reused."""

import contextlib
import functools
import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert_jax.data import store as stores
from bert_jax.data.preparation import corpus
from bert_jax.data.preparation.lost_text import add_literals, count_lost, split_parts
from bert_jax.data.preparation.shards import Shard
from bert_jax.data.sources.wrapped import count_wrapped
from bert_jax.errors import Unfinished
from bert_jax.storage import atomic
from bert_jax.tokenizers import tokenizer as tokenizers
from bert_jax.tokenizers import words
from bert_jax.tokenizers.corpus_encoder import flatten

LOG_EVERY = 10.0  # seconds


def encode(
    sources: list[corpus.Source], directory: Path, problems: Counter, run: Callable, log: Callable
) -> tuple[list[Shard], int]:
    """Encodes all documents into shard files in the workspace, in corpus order. Reuses existing shard files.

    directory: the workspace, with the vocabulary.
    problems: counts input that cannot be split into texts, by reason.
    run: maps a function over tasks.

    Returns the shards, and the number of bytes of text that were encoded now.
    """
    shards_directory = directory / "shards"
    shards_directory.mkdir(exist_ok=True)
    atomic.remove_temporary(shards_directory)
    if existing := len(list(shards_directory.iterdir())):
        log(f"prepare: resumes, {existing} shards are already encoded")
    shards = []

    def missing_shards() -> Iterator[tuple[Shard, corpus.TextBlock]]:
        for shard, block in tasks(sources, directory, problems):
            shards.append(shard)
            if not shard.path.exists():
                yield shard, block

    size = 0
    start = time.monotonic()
    last_log = start
    encode_task = functools.partial(encode_shard, directory / "vocabulary")
    for encoded_bytes in run(encode_task, missing_shards()):
        size += encoded_bytes
        now = time.monotonic()
        if now - last_log > LOG_EVERY:
            last_log = now
            log(f"prepare: {size / 1e6:,.0f} MB of text, {size / 1e6 / (now - start):.1f} MB/s")
    return shards, size


def tasks(
    sources: list[corpus.Source], directory: Path, problems: Counter
) -> Iterator[tuple[Shard, corpus.TextBlock]]:
    """Yields the blocks of all sources, each with its shard in the workspace. problems: as for `encode`."""
    for source_number, source in enumerate(sources):
        for index, block in enumerate(source.blocks(problems)):
            name = f"{source_number:03d}-{index:08d}.npz"
            yield Shard(directory / "shards" / name, source_number), block


class Parsed(NamedTuple):
    """A block whose documents are in a file of their own, for `encode_shard`."""

    shard: Shard
    size: int  # bytes of text
    hashes: np.ndarray  # of the documents that have sentences
    by_position: np.ndarray  # whether each of these is held out by its position
    problems: dict[str, int]


def parse(task: tuple[Shard, corpus.TextBlock]) -> Parsed:
    """Runs in a worker: parses a block, and writes its documents."""
    shard, block = task
    parsed = read_documents(shard, block)
    documents = parsed["documents"]
    shard.parsed.write(parsed)
    places = corpus.heldout_by_position(block, documents)
    return Parsed(shard, block.size, text_hashes(documents), places, parsed["problems"])


def read_documents(shard: Shard, block: corpus.TextBlock) -> dict:
    """Returns {documents, problems} of a block; parses it if it has no file of them, or a damaged one."""
    with contextlib.suppress(Unfinished):
        return shard.parsed.header()
    problems = Counter()
    return {"documents": corpus.documents(block, problems), "problems": problems}


@functools.lru_cache(maxsize=1)
def load_encoder(vocabulary: Path):
    """Loads the tokenizer and its corpus encoder; cached in each process.

    The cache is safe: the workspace's name is a digest of everything that decides the vocabulary.
    """
    tokenizer = tokenizers.load(vocabulary)
    return tokenizer, tokenizer.corpus_encoder()


def encode_shard(vocabulary: Path, task: tuple[Shard, corpus.TextBlock]) -> int:
    """Runs in a worker: writes a block's shard, and returns the number of bytes of its text."""
    shard, block = task
    parsed = read_documents(shard, block)
    documents = parsed["documents"]
    problems = Counter(parsed["problems"])
    tokenizer, encode_documents = load_encoder(vocabulary)
    sentences = list(chain(*documents))
    text = " ".join(sentences)
    add_literals(text, tokenizer, block.reading.separator, problems)
    is_exact = block.reading.sentences == "none"
    if is_exact:
        tokens, ends = flatten(tokenizer.encode(sentences))
        sentences = [part for text in sentences for part in split_parts(text)]
    else:
        tokens, ends = encode_documents(documents)
    lengths = np.diff(ends, prepend=0)  # of the sentences, in tokens
    # A sentence of control characters alone has no tokens. A document of such sentences counts as empty.
    has_tokens = lengths > 0
    sizes = np.array(list(map(len, documents)), np.int64)
    owners = np.repeat(np.arange(len(documents)), sizes)
    in_documents = np.bincount(owners[has_tokens], minlength=len(documents))
    counts = {
        "bytes": block.size,
        "tokens_read": len(tokens),
        "words_read": words.count(text),
        "documents_read": len(documents),
        "empty": int((in_documents == 0).sum()),
        **count_lost(sentences, tokenizer, is_exact),
        **count_wrapped([] if is_exact else documents),
    }
    arrays = {
        "tokens": tokens.astype(stores.token_type(tokenizer.size)),
        "sentences": lengths[has_tokens].astype(np.uint32),
        "documents": in_documents[sizes > 0].astype(np.uint32),
        "text_hashes": text_hashes(documents),
        "is_heldout": corpus.heldout_by_position(block, documents),
    }
    shard.write({"counts": counts, "problems": problems}, **arrays)
    shard.parsed.path.unlink(missing_ok=True)
    return counts["bytes"]


def text_hashes(documents: list[list[str]]) -> np.ndarray:
    """Returns uint64[D, 2], the 16-byte BLAKE2b hashes of the documents that have sentences; they do not depend on the
    vocabulary."""
    hashes = []
    for document in filter(None, documents):
        text = "\n".join(document).encode()
        hashes.append(hashlib.blake2b(text, digest_size=16).digest())
    return np.frombuffer(b"".join(hashes), "<u8").reshape(-1, 2)

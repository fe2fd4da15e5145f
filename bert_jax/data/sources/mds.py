"""MDS shards of MosaicML Streaming: a sample is a document, its text or its tokens in the column `corpus.field`.

A shard has the number n of its samples, n + 1 offsets (sample i lies between offsets i and i + 1), and its columns as
JSON; numbers are uint32. A sample has the sizes of those of its values whose column has no fixed size, and then all
values. Of an index.json, the names of the shards are read, so that none is missing.
"""

import functools
import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np

from bert_jax.data.sources.files import explain, open_text
from bert_jax.errors import BadInput
from bert_jax.tokenizers import tokenizer as tokenizers

TOKENS = "ndarray:int", "ndarray:uint"  # how the encodings of ids begin
ERRORS = ArithmeticError, LookupError, MemoryError, TypeError, ValueError  # of a damaged shard


def find_shards(source: str, paths: list[Path]) -> list[Path]:
    """Returns the shards among the files of a source; of two copies of one, that which is not compressed.

    Raises BadInput if there is none, or not one that an index.json among the files lists.
    """
    shards = {}  # by the names without compression, of which the files come first
    for path in paths:
        head, mark, _ = path.name.partition(".mds")
        if mark:
            shards.setdefault(path.with_name(head + mark), path)
    if not shards:
        raise BadInput(f"config.corpus.source: {source}: has no shards (.mds)")
    for path in paths:
        if path.name == "index.json":
            with explain(path, *ERRORS):
                entries = json.loads(path.read_bytes())["shards"]
                names = [entry["raw_data"]["basename"] for entry in entries]
            for name in names:
                if path.with_name(name) not in shards:
                    raise BadInput(f"{path}: lists {name}, which is missing")
    return list(shards.values())


def texts(path: Path, reading, problems) -> Iterator[bytes]:
    """Yields the text of each sample of a shard in order.

    reading: see text.Reading; with a tokenizer, tokens are decoded.

    Raises BadInput if the shard has no such column, or is damaged, and OSError if the disk fails.
    """
    field = reading.field
    tokenizer = reading.tokenizer
    with explain(path, *ERRORS), open_text(path) as file:
        number = int.from_bytes(file.read(4), "little")
        offsets = np.frombuffer(file.read(4 * number + 4), "<u4").tolist()
        columns = json.loads(file.read(offsets[0] - 4 * number - 8))
        encodings = dict(zip(columns["column_names"], columns["column_encodings"], strict=True))
        encoding = encodings.get(field, "")
        if encoding != "str" and not (tokenizer and encoding.startswith(TOKENS)):
            raise BadInput(
                f"config.corpus.field={field}: {path} has {encodings}; expected text (str), or tokens"
                " (such as ndarray:uint16) and their config.tokenizer.path"
            )
        index = list(encodings).index(field)
        widths = columns["column_sizes"]
        for start, stop in pairwise(offsets):
            sample = file.read(stop - start)
            sizes = np.frombuffer(sample, "<u4", widths.count(None)).tolist()
            ends = [4 * len(sizes)]
            for width in widths:
                ends.append(ends[-1] + (width or sizes.pop(0)))
            if ends[-1] != len(sample):
                raise ValueError("a sample of another size")
            value = sample[ends[index] : ends[index + 1]]
            yield value if encoding == "str" else decode(value, encoding, tokenizer)


load = functools.lru_cache(1)(tokenizers.from_file)


def decode(value: bytes, encoding: str, tokenizer: str) -> bytes:
    """Returns the text of an array of ids, without its special tokens."""
    tokenizer = load(tokenizer, lowercase=False)
    _, kind, *shape = encoding.split(":")
    if not shape:  # a byte has the number of axes and, in two bits, the type of their sizes
        value = value[1 + (value[0] // 4 << value[0] % 4) :]
    ids = np.frombuffer(value, kind).tolist()
    largest = max(ids, default=0)
    if largest >= tokenizer.size:
        raise ValueError(f"token {largest} is not in config.tokenizer.path")
    return tokenizer.decode(ids).encode()

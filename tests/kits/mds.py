"""Writes MDS shards of MosaicML Streaming by the layout that the library documents."""

import bz2
import gzip
import json

import numpy as np
import pyarrow


def zstd(content: bytes) -> bytes:
    return pyarrow.compress(content, codec="zstd", asbytes=True)


# Name of the compression, which is also the end of the file's, and the function.
COMPRESSIONS = {"": bytes, "zstd": zstd, "gz": gzip.compress, "bz2": bz2.compress}


def array(values, kind: str) -> bytes:
    """Returns an array without a fixed shape: a byte with the number of axes and the type of the size, the size."""
    size_type = 0 if len(values) < 256 else 1
    size = np.array(len(values), ("u1", "<u2")[size_type]).tobytes()
    return bytes([1 << 2 | size_type]) + size + np.array(values, kind).tobytes()


def encode_sample(values: list[bytes], sizes: list[int | None]) -> bytes:
    heads = [
        np.uint32(len(value)).tobytes()
        for value, size in zip(values, sizes, strict=True)
        if not size
    ]
    return b"".join(heads + values)


def encode_shard(columns: dict, samples: list[list[bytes]]) -> bytes:
    """Returns a shard. columns: {name: (encoding, fixed size or None)}, sorted by name."""
    encodings, sizes = map(list, zip(*columns.values(), strict=True))
    config = {"column_names": [*columns], "column_encodings": encodings, "column_sizes": sizes}
    config |= {
        "compression": None,
        "format": "mds",
        "hashes": [],
        "size_limit": 1 << 26,
        "version": 2,
    }
    header = json.dumps(config, sort_keys=True).encode()
    parts = [encode_sample(sample, sizes) for sample in samples]
    first = 4 + 4 * (len(parts) + 1) + len(header)
    offsets = np.cumsum([first, *map(len, parts)]).astype("<u4")
    return b"".join([np.uint32(len(parts)).tobytes(), offsets.tobytes(), header, *parts])


def text_shard(texts: list[str]) -> bytes:
    """Returns a shard with a number, whose size is fixed, the text, and its source."""
    columns = {"id": ("int", 8), "source": ("str", None), "text": ("str", None)}
    samples = [[np.int64(i).tobytes(), b"web", text.encode()] for i, text in enumerate(texts)]
    return encode_shard(columns, samples)


def write(directory, *shards: bytes, compression: str = ""):
    """Writes the shards of a directory and its index.json; returns the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    entries = []
    for number, shard in enumerate(shards):
        name = f"shard.{number:05d}.mds"
        entry = {
            "format": "mds",
            "raw_data": {"basename": name, "bytes": len(shard)},
            "zip_data": None,
        }
        if compression:
            name += f".{compression}"
            entry["zip_data"] = {"basename": name}
        (directory / name).write_bytes(COMPRESSIONS[compression](shard))
        entries.append(entry)
    (directory / "index.json").write_text(json.dumps({"version": 2, "shards": entries}))
    (directory / "README.md").write_text("# Its files")
    return directory

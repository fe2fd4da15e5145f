"""Writes small token stores of chosen documents, and large ones of random tokens."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bert_jax.data import manifest as manifests
from bert_jax.data import store

SPECIAL = {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}
PART = 1 << 24  # tokens of a synthetic store that are generated at a time
HEADER = 128  # bytes of the .npy header of a vector


def make_store(
    path, train, heldout=None, vocabulary: int = 1000, sources=None, names=None
) -> store.Store:
    """Writes a store of documents, each a list of sentences, each a list of ids.

    sources: {split: [number of documents of each source]}; one source by default.
    names: those of the sources, if they have any.
    """
    path = Path(path)
    splits = dict(zip(store.SPLITS, (train, heldout or train[:2]), strict=True))
    sources = sources or {name: [len(documents)] for name, documents in splits.items()}
    for name, documents in splits.items():
        sentences = [sentence for document in documents for sentence in document]
        arrays = (
            np.concatenate(sentences).astype(store.token_type(vocabulary)),
            np.cumsum([len(sentence) for sentence in sentences]),
            np.cumsum([len(document) for document in documents]),
        )
        write_split(path / name, *arrays)
    ends = np.cumsum(sources["train"])
    parts = [train[end - number : end] for number, end in zip(sources["train"], ends, strict=True)]
    unigrams = []
    for documents in parts:
        ids = [id for document in documents for sentence in document for id in sentence]
        unigrams.append(np.bincount(ids, minlength=vocabulary))
    unigrams = np.array(unigrams)
    return finish_store(path, vocabulary, unigrams, sources, names or [None] * len(unigrams))


def write_split(path: Path, *arrays) -> None:
    path.mkdir(parents=True)
    for name, array in zip(store.ARRAYS, arrays, strict=True):
        np.save(path / f"{name}.npy", array)


def finish_store(path: Path, vocabulary, unigrams, documents: dict, names=(None,)) -> store.Store:
    """Writes the unigram counts, int64[sources, V], and the manifest. documents: {split: [number per source]}."""
    np.save(path / "unigrams.npy", unigrams)
    manifest = {"vocabulary": vocabulary, "special": SPECIAL, "fingerprint": "0123456789abcdef"}
    manifest |= {"made_from": {}, "unigram_entropy": 5.0}
    manifest["sources"] = [
        {"source": f"made{number}", "documents": dict(zip(documents, numbers, strict=True))}
        for number, numbers in enumerate(zip(*documents.values(), strict=True))
    ]
    for source, name, counts in zip(manifest["sources"], names, unigrams, strict=True):
        if name:
            source |= {"name": name, "tokens": {"train": int(counts.sum())}}
    manifests.write(path, manifest, store.FORMAT)
    return store.open_store(path)


def random_documents(number: int, seed: int = 0, sentences: int = 20, words: int = 20) -> list:
    """Returns documents of 1 to `sentences` sentences of 1 to `words` random ids from 5 to 999."""
    draw = np.random.default_rng(seed)
    return [
        [draw.integers(5, 1000, draw.integers(1, words + 1)).tolist() for _ in range(count)]
        for count in draw.integers(1, sentences + 1, number)
    ]


def synthetic_store(path: Path, tokens: int, vocabulary: int = 30522) -> store.Store:
    """Writes a store of about `tokens` random tokens, in bounded memory.

    Sentences have about 25 tokens, documents about 600.
    """
    documents = {}
    unigrams = []
    for name, number in zip(store.SPLITS, (tokens, min(tokens // 100, PART)), strict=True):
        (Path(path) / name).mkdir(parents=True)
        paths = [Path(path) / name / f"{array}.npy" for array in store.ARRAYS]
        for array in paths:
            array.write_bytes(bytes(HEADER))
        sizes = [0, 0, 0]
        counts = np.zeros(vocabulary, np.int64)
        for ids, sentence_ends, document_ends in synthetic_parts(number, vocabulary, len(name)):
            counts += np.bincount(ids, minlength=vocabulary)
            arrays = ids, sentence_ends + sizes[0], document_ends + sizes[1]
            for i, (array, values) in enumerate(zip(paths, arrays, strict=True)):
                with open(array, "ab") as file:
                    values.tofile(file)
                sizes[i] += len(values)
        for array, size, dtype in zip(paths, sizes, ("<u2", "<i8", "<i8"), strict=True):
            header = {"descr": dtype, "fortran_order": False, "shape": (size,)}
            with open(array, "r+b") as file:
                np.lib.format.write_array_header_1_0(file, header)
        documents[name] = [sizes[2]]
        unigrams.append(counts)
    return finish_store(Path(path), vocabulary, unigrams[0][None], documents)


def synthetic_parts(tokens: int, vocabulary: int, seed: int) -> Iterator[tuple]:
    """Yields (ids, sentence ends, document ends) of whole documents, about PART tokens at a time."""
    draw = np.random.default_rng(seed)
    done = 0
    while done < tokens:
        needed = min(PART, tokens - done)
        lengths = 1 + draw.negative_binomial(3, 3 / 27, needed // 25 + 48)
        sentence_ends = np.cumsum(lengths)
        document_ends = np.cumsum(1 + draw.geometric(1 / 23, len(lengths) // 24 + 1))
        document_ends = np.minimum(document_ends, len(lengths))
        document_ends = document_ends[: 1 + np.argmax(document_ends)]  # the last one is cut short
        sentence_ends = sentence_ends[: document_ends[-1]]
        ids = draw.integers(5, vocabulary, sentence_ends[-1], dtype=np.uint16)
        yield ids, sentence_ends, document_ends
        done += len(ids)

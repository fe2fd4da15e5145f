"""Small token stores made by hand."""

from pathlib import Path

import numpy as np

from bert_jax.data import store

SPECIAL = {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}


def make_store(path, train, heldout=None, vocabulary: int = 1000) -> store.Store:
    """A store of documents, each a list of sentences, each a list of ids."""
    path = Path(path)
    for name, documents in zip(store.SPLITS, (train, heldout or train[:2]), strict=True):
        sentences = [sentence for document in documents for sentence in document]
        arrays = (
            np.concatenate(sentences).astype(store.token_type(vocabulary)),
            np.cumsum([len(sentence) for sentence in sentences]),
            np.cumsum([len(document) for document in documents]),
        )
        write_split(path / name, *arrays)
    return finish_store(path, vocabulary)


def write_split(path: Path, *arrays) -> None:
    path.mkdir(parents=True)
    for name, array in zip(store.ARRAYS, arrays, strict=True):
        np.save(path / f"{name}.npy", array)


def finish_store(path: Path, vocabulary: int) -> store.Store:
    manifest = {"vocabulary": vocabulary, "special": SPECIAL, "fingerprint": "0123456789abcdef"}
    manifest |= {"made_from": {}, "unigram_entropy": 5.0}
    ends = {
        name: np.load(path / name / "document_ends.npy", mmap_mode="r") for name in store.SPLITS
    }
    documents = {name: len(array) for name, array in ends.items()}
    manifest["sources"] = [{"source": "made", "documents": documents}]
    store.write_manifest(path, manifest)
    return store.open_store(path)


def random_documents(number: int, seed: int = 0, sentences: int = 20, words: int = 20) -> list:
    """Documents of 1 to `sentences` sentences of 1 to `words` random ids from 5 to 999."""
    draw = np.random.default_rng(seed)
    return [
        [draw.integers(5, 1000, draw.integers(1, words + 1)).tolist() for _ in range(count)]
        for count in draw.integers(1, sentences + 1, number)
    ]


def synthetic_store(path: Path, tokens: int, vocabulary: int = 30522) -> store.Store:
    """About `tokens` random tokens: sentences of about 25 tokens, documents of about 600."""
    for name, share in zip(store.SPLITS, (1.0, 0.01), strict=True):
        draw = np.random.default_rng(len(name))
        lengths = 1 + draw.negative_binomial(3, 3 / 27, int(tokens * share / 25) + 48)
        ends = np.cumsum(lengths)
        sizes = 1 + draw.geometric(1 / 23, len(ends) // 24)
        document_ends = np.cumsum(sizes)
        document_ends = document_ends[document_ends <= len(ends)]
        ends = ends[: document_ends[-1]]
        ids = draw.integers(5, vocabulary, ends[-1], dtype=np.uint16)
        write_split(Path(path) / name, ids, ends, document_ends)
    return finish_store(Path(path), vocabulary)

"""Shards -> the splits of a store: assigns each document to a split, and writes the arrays in corpus order.

Documents are identified by 16-byte hashes of their text. Sorting these takes at most 64 bytes of memory per document.
"""

import contextlib
from pathlib import Path

import numpy as np

from bert_jax.checks import is_heldout_by_hash, source_names
from bert_jax.data import store as stores
from bert_jax.data.npy_file import NpyWriter
from bert_jax.data.preparation.corpus import Source
from bert_jax.data.preparation.shards import Shard
from bert_jax.data.sources.problems import describe
from bert_jax.errors import BadInput

TRAIN, HELDOUT, COPY = range(3)  # the first two are indexes into stores.SPLITS


def assign(
    config,
    hashes: np.ndarray,
    by_position: np.ndarray,
    drop_copies: bool,
    problems: dict,
    sources: np.ndarray,
) -> np.ndarray:
    """Returns uint8[D]: TRAIN, HELDOUT or COPY for each document.

    config: says how many documents are held out by their hashes. These have the smallest ones, so the choice depends on
        their text and not on their order. Copies are in the same split. If sources have names, at least as many of each
        are held out as a split needs.
    hashes: uint64[D, 2], of the documents' texts.
    by_position: bool[D], whether each one is held out by its position. Copies of these in the other documents are COPY.
    drop_copies: marks all copies but the first in a split as COPY.
    problems: numbers by reason, for the message.
    sources: int64[D], the number of each document's source.

    Documents without tokens count, too, so that the vocabulary does not matter; `write` leaves them out. Raises
    BadInput if too few documents are left.
    """
    # Stable: equal hashes stay in corpus order, those that are held out by their position before the others.
    order = np.lexsort((~by_position, hashes[:, 1], hashes[:, 0]))
    is_first = np.ones(len(order), bool)
    is_first[1:] = (hashes[order[1:]] != hashes[order[:-1]]).any(axis=1)
    distinct = int(is_first.sum())
    least = least_documents(config)
    if distinct < 2 * least:
        dropped = describe(problems) or "no problems"
        raise BadInput(
            f"corpus: {distinct} distinct documents with text ({dropped}); at least {2 * least} are needed, {least} to"
            f" train on and {least} held out; separate documents by blank lines with config.corpus.format=lines or by"
            " config.corpus.separator, hold out the end of the text by config.corpus.heldout_by=end, or change"
            " config.corpus.format or config.filter"
        )
    state = np.where(by_position, HELDOUT, TRAIN).astype(np.uint8)
    text = np.cumsum(is_first) - 1  # the number of each document's text
    if is_heldout_by_hash(config):
        is_heldout = heldout_texts(config, sources[order[is_first]], least)
        state[order[is_heldout[text]]] = HELDOUT
    if drop_copies:
        state[order[~is_first]] = COPY
    firsts = order[is_first][text]
    state[order[by_position[firsts] & ~by_position[order]]] = COPY
    return state


def heldout_texts(config, sources: np.ndarray, least: int) -> np.ndarray:
    """Returns bool[T]: whether each distinct text, in the order of their hashes, is held out.

    sources: int[T], the number of each one's source.
    """
    count = max(least, round(config.corpus.heldout * len(sources)))
    is_heldout = np.arange(len(sources)) < min(count, len(sources) - least)
    for index, name in enumerate(source_names(config)):
        if not name:
            continue
        texts = np.flatnonzero(sources == index)
        if len(texts) < 2 * least:
            raise BadInput(
                f"config.corpus.source: {name} has {len(texts)} distinct documents with text; a source with a name"
                f" needs {2 * least}, {least} to train on and {least} held out"
            )
        is_heldout[texts[:least]] = True
        is_heldout[texts[-least:]] = False
    return is_heldout


def least_documents(config) -> int:
    """Returns the least number of documents of a split: rows with a random document need two."""
    return 1 if config.corpus.sentences == "none" else 2


def write(
    shards: list[Shard],
    state: np.ndarray,
    sources: list[Source],
    directory: Path,
    vocabulary: int,
    least: int,
) -> list[dict]:
    """Writes both splits and unigrams.npy under `directory`; returns the manifest's `sources`: counts for each source.

    state: uint8[D], the result of `assign`.
    vocabulary: number of pieces.
    least: documents of a split.

    Memory holds one shard at a time. Raises BadInput if a split has fewer documents with tokens.
    """
    unigrams = np.zeros((len(sources), vocabulary), np.int64)
    table = []
    for source in sources:
        counts = {key: dict.fromkeys(stores.SPLITS, 0) for key in ("documents", "tokens")}
        table.append({"source": source.name, "format": source.reading.form, **counts})
        if source.title:
            table[-1]["name"] = source.title
    dtype = stores.token_type(vocabulary)
    first = 0
    with contextlib.ExitStack() as stack:
        writers = [stack.enter_context(create(directory / name, dtype)) for name in stores.SPLITS]
        for shard in shards:
            tokens, sentences, documents = shard.read("tokens", "sentences", "documents")
            shard_state = state[first : first + len(documents)]
            first += len(documents)
            counts = table[shard.source]
            for index, name in enumerate(stores.SPLITS):
                in_split = (shard_state == index) & (documents > 0)
                sentence_in_split = np.repeat(in_split, documents)
                split_tokens = tokens[np.repeat(sentence_in_split, sentences)]
                append_documents(
                    writers[index], split_tokens, sentences[sentence_in_split], documents[in_split]
                )
                counts["documents"][name] += int(in_split.sum())
                counts["tokens"][name] += len(split_tokens)
                if index == TRAIN:
                    unigrams[shard.source] += np.bincount(split_tokens, minlength=vocabulary)
    np.save(directory / "unigrams.npy", unigrams)
    for name in stores.SPLITS:
        if sum(source["documents"][name] for source in table) < least:
            raise BadInput(f"corpus: fewer than {least} documents of split {name} have tokens")
    for source in table:
        if "name" in source and not source["documents"][stores.SPLITS[TRAIN]]:
            raise BadInput(f"corpus: no document of {source['name']} to train on has tokens")
    return table


@contextlib.contextmanager
def create(directory: Path, dtype: np.dtype):
    """Opens the files of one split for writing: tokens of type `dtype`, sentence ends, document ends."""
    directory.mkdir()
    arrays = []
    with contextlib.ExitStack() as stack:
        for name in stores.ARRAYS:
            file = stack.enter_context(open(directory / f"{name}.npy", "wb"))
            arrays.append(NpyWriter(file, dtype if name == "tokens" else np.int64))
        yield arrays
        for array in arrays:
            array.finish()


def append_documents(arrays: list[NpyWriter], tokens, sentences, documents) -> None:
    """Appends documents to a split; converts the lengths of sentences and documents to ends."""
    all_tokens, sentence_ends, document_ends = arrays
    document_ends.append(sentence_ends.length + np.cumsum(documents, dtype=np.int64))
    sentence_ends.append(all_tokens.length + np.cumsum(sentences, dtype=np.int64))
    all_tokens.append(tokens)

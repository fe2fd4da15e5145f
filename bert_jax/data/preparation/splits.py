"""Shards -> the splits of a store: assigns each document to a split, and writes the arrays in corpus order.

Documents are identified by 16-byte hashes of their text. Sorting these takes at most 64 bytes of memory per document.
"""

import contextlib
from pathlib import Path

import numpy as np

from bert_jax.data import store as stores
from bert_jax.data.corpus import Source
from bert_jax.data.npy_file import NpyWriter
from bert_jax.data.preparation.shards import Shard
from bert_jax.data.sources.problems import describe
from bert_jax.errors import BadInput

TRAIN, HELDOUT, COPY = range(3)  # the first two are indexes into stores.SPLITS


def assign(hashes: np.ndarray, share: float, drop_copies: bool, problems: dict) -> np.ndarray:
    """Returns uint8[D]: TRAIN, HELDOUT or COPY for each document. hashes: uint64[D, 2].

    Holds out about `share` of the distinct documents, those with the smallest hashes, so the choice depends on their
    text and not on their order. Copies are in the same split; with `drop_copies`, all but the first in the corpus are
    marked COPY. Documents without tokens count, too, so that the vocabulary does not matter; `write` leaves them out.
    Raises BadInput if too few documents are left; the message lists the numbers of `problems`.
    """
    order = np.lexsort((hashes[:, 1], hashes[:, 0]))  # stable: equal hashes stay in corpus order
    is_first = np.ones(len(order), bool)
    is_first[1:] = (hashes[order[1:]] != hashes[order[:-1]]).any(axis=1)
    different = int(is_first.sum())
    if different < 4:
        needs = "at least four are needed, two to train on and two held out"
        hint = "separate documents by blank lines, or change config.corpus.format or config.filter"
        dropped = describe(problems) or "no problems"
        found = f"{different} distinct documents with text ({dropped})"
        raise BadInput(f"corpus: {found}; {needs}; {hint}")
    heldout_count = min(max(2, round(share * different)), different - 2)
    state = np.full(len(order), TRAIN, np.uint8)
    state[order[np.cumsum(is_first) <= heldout_count]] = HELDOUT
    if drop_copies:
        state[order[~is_first]] = COPY
    return state


def write(
    shards: list[Shard], state: np.ndarray, sources: list[Source], directory: Path, vocabulary: int
) -> list[dict]:
    """Writes both splits and unigrams.npy under `directory`; returns the manifest's `sources`: counts for each source.

    state: uint8[D], the result of `assign`. vocabulary: number of pieces. Memory holds one shard at a time.
    """
    unigrams = np.zeros((len(sources), vocabulary), np.int64)
    table = [
        {"source": source.name, "format": source.reading.form}
        | {counted: dict.fromkeys(stores.SPLITS, 0) for counted in ("documents", "tokens")}
        for source in sources
    ]
    first, dtype = 0, stores.token_type(vocabulary)
    with contextlib.ExitStack() as stack:
        writers = [stack.enter_context(create(directory / name, dtype)) for name in stores.SPLITS]
        for shard in shards:
            tokens, sentences, documents = shard.read("tokens", "sentences", "documents")
            of_shard = state[first : first + len(documents)]
            first += len(documents)
            for number, (name, writer) in enumerate(zip(stores.SPLITS, writers, strict=True)):
                chosen = (of_shard == number) & (documents > 0)
                of_sentences = np.repeat(chosen, documents)
                part = tokens[np.repeat(of_sentences, sentences)]
                append_documents(writer, part, sentences[of_sentences], documents[chosen])
                table[shard.source]["documents"][name] += int(chosen.sum())
                table[shard.source]["tokens"][name] += len(part)
                if number == TRAIN:
                    unigrams[shard.source] += np.bincount(part, minlength=vocabulary)
    np.save(directory / "unigrams.npy", unigrams)
    for name in stores.SPLITS:
        if sum(source["documents"][name] for source in table) < 2:
            raise BadInput(f"corpus: fewer than two documents of split {name} have tokens")
    return table


@contextlib.contextmanager
def create(directory: Path, dtype: np.dtype):
    """Opens the files of one split for writing: tokens, sentence ends, document ends."""
    directory.mkdir()
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(open(directory / f"{n}.npy", "wb")) for n in stores.ARRAYS]
        arrays = list(map(NpyWriter, files, (dtype, np.int64, np.int64)))
        yield arrays
        for array in arrays:
            array.finish()


def append_documents(arrays: list[NpyWriter], tokens, sentences, documents) -> None:
    """Appends documents to a split; converts the lengths of sentences and documents to ends."""
    all_tokens, sentence_ends, document_ends = arrays
    document_ends.append(sentence_ends.length + np.cumsum(documents, dtype=np.int64))
    sentence_ends.append(all_tokens.length + np.cumsum(sentences, dtype=np.int64))
    all_tokens.append(tokens)

"""Perplexity of causal models on whole documents, by sliding windows, and bits a byte and a character.

The probabilities of all tokens of a text multiply to one number, whatever the vocabulary. Its bits a byte, a character
or a word compare models with different vocabularies; nats a token do not.
"""

import math
from collections.abc import Sequence

import numpy as np

from bert_jax.errors import BadInput
from bert_jax.inference import table, token_scores
from bert_jax.runs import open_run
from bert_jax.tokenizers import words


def count(texts: Sequence[str]) -> dict[str, int]:
    """Returns the numbers of documents, words by white space, characters, and bytes in UTF-8."""
    return {
        "documents": len(texts),
        "words": sum(map(words.count, texts)),
        "characters": sum(map(len, texts)),
        "bytes": sum(len(text.encode()) for text in texts),
    }


def cut_windows(ids: np.ndarray, length: int, stride: int) -> list[tuple[np.ndarray, int]]:
    """Returns (ids, number of the last of them that are scored) of the windows of a document, which share its memory.

    The first window scores all its tokens but the first. Each later one has `length` tokens and scores the next
    `stride` of the document, or those that are left: every token is scored once, those of later windows with at least
    length - stride tokens before them.

    ids: int[size], of the document, with its context, see `token_scores.with_context`.
    """
    windows = []
    first = 1
    while first < len(ids):
        stop = min(len(ids), max(length, first + stride))
        windows.append((ids[max(0, stop - length) : stop], stop - first))
        first = stop
    return windows


def check_stride(directory, model, stride: int) -> None:
    """Raises BadInput if windows with this stride would leave out tokens of a text."""
    length = open_run.trained_positions(model)
    if not 0 <= stride < length:
        hint = f"expected less than the {length} positions of {directory}"
        raise BadInput(f"--stride {stride}: {hint}")


def evaluate(model, texts: list[str], stride: int) -> dict:
    """Returns the measures of a causal model on documents.

    nats_per_token, perplexity: of a token; bits_per_byte, bits_per_character, nats_per_word, word_perplexity: of the
    text of these tokens, whatever the vocabulary. first_token: that in front of each document, see token_scores.py.
    tokens, unknown: how many are scored, and how many of these are [UNK]. is_exact: whether the tokens spell the text,
    but for white space at its ends.

    stride: of the windows, see `check_stride`; 0: half their length, which is that of the positions that training has
        reached.

    Raises BadInput if no token is scored.
    """
    length = open_run.trained_positions(model)
    tokenizer = model.tokenizer
    ids = tokenizer.encode(texts)
    decoded = map(tokenizer.decode, ids)
    is_exact = all(a.strip() == b.strip() for a, b in zip(texts, decoded, strict=True))
    windows = []
    for row in ids:
        row = np.array(token_scores.with_context(model, row))
        windows += cut_windows(row, length, stride or max(1, length // 2))
    first = token_scores.first_token(model)
    if not first:  # first tokens have no context, and no score
        ids = [row[1:] for row in ids]
        pairs = zip(texts, tokenizer.encode_with_offsets(texts), strict=True)
        texts = [text[np.max(offsets[:1], initial=0) :] for text, (_, offsets) in pairs]
    tokens = sum(map(len, ids))
    counts = count(texts)
    if not (tokens and counts["words"]):
        raise BadInput("evaluate: the text has no token that the model scores")
    rows, numbers = zip(*windows, strict=True)
    total = -token_scores.score_rows(model, rows, numbers).sum().item()
    bits = total / math.log(2)
    return {
        "nats_per_token": total / tokens,
        "perplexity": exponential(total / tokens),
        "nats_per_word": total / counts["words"],
        "word_perplexity": exponential(total / counts["words"]),
        "bits_per_byte": bits / counts["bytes"],
        "bits_per_character": bits / counts["characters"],
        "first_token": first,
        "tokens": tokens,
        "unknown": sum(row.count(tokenizer.unk) for row in ids),
        "is_exact": is_exact,
    }


def exponential(nats: float) -> float:
    """Returns e to a power, infinite if it is too large, as for a text without spaces."""
    with np.errstate(over="ignore"):
        return float(np.exp(nats))


def describe(values: dict) -> str:
    """Returns a table as text, one line for each model. values: those of `count`, and `models`."""
    counts = ", ".join(f"{values[name]:,} {name}" for name in count(()))
    return "\n".join([counts, *table.lines(values["models"])])

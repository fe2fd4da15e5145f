"""Log-probabilities of the tokens of texts under a causal or a masked model, in batches of rows of similar lengths.

T texts, N tokens of all texts, B rows, L length, V padded vocabulary.
"""

import re
import sys
import unicodedata
from functools import cache, partial
from itertools import chain

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.convert import load_model
from bert_jax.data.sources.text import has_visible
from bert_jax.errors import BadInput
from bert_jax.inference import fill_mask
from bert_jax.inference.batches import MULTIPLE, TOKENS, run_texts
from bert_jax.objectives import base
from bert_jax.tasks.text.documents import Rows

ROWS = TOKENS // MULTIPLE  # texts at once
# A masked model does not see the token that it scores. With `word`, it does not see the later pieces of its word either
# (arXiv:2305.10588, "within-word left-to-right"); with `token`, it sees all others (arXiv:1910.14659).
MASKING = ("word", "token")


def with_context(model, ids: list[int]) -> list[int]:
    """Returns the row of a text for a causal model: in front of it is the token with which a model of another program
    begins texts, or [SEP], which ends the document before it in the rows of training. A vocabulary without them has
    nothing there, so that the first token is not scored."""
    begin = model.vocabulary.begin
    return ids if begin is None else [begin, *ids]


def first_token(model) -> str:
    """Returns the token in front of a text for a causal model; '' if there is none."""
    return "".join(model.tokenizer.pieces[number] for number in with_context(model, []))


def check_masking(directory, model, masking: str | None) -> None:
    """Raises BadInput for a value that is not of MASKING, and for any with a causal LM."""
    if masking and model.can("continue"):
        raise BadInput(f"--masking: {directory} is a causal LM, which masks nothing")
    if masking not in (None, *MASKING):
        raise BadInput(f"--masking {masking}: expected one of {', '.join(MASKING)}")


def score_sentences(
    model,
    texts: list[str],
    places: list[str],
    masking=None,
) -> tuple[np.ndarray, np.ndarray, int]:
    """Returns float64[T] and int64[T], the sums of the log-probabilities of the tokens of each text in nats and the
    numbers of these tokens, and how many of all tokens are [UNK].

    Those of a masked model are pseudo-log-likelihoods.

    places: of the texts, for messages.
    masking: of MASKING, for a masked model; default: word.

    Raises BadInput for a text without a token to score, or with more than the positions that training has reached, and
    for a score that is not finite.
    """
    tokenizer = model.tokenizer
    room = load_model.trained_positions(model)
    is_masked = model.can("fill")
    if is_masked:
        encoded = [*tokenizer.encode_with_offsets(texts)]
        ids = [tokens for tokens, _ in encoded]
        room -= model.frame.size()
    else:
        ids = tokenizer.encode(texts)
        room -= len(with_context(model, []))
    sizes = np.array([*map(len, ids)])
    if not is_masked and not first_token(model):
        sizes -= 1  # the first token has no context
    for place, text, tokens, size in zip(places, texts, ids, sizes, strict=True):
        if len(tokens) > room:
            raise BadInput(f"{place}: {len(tokens)} tokens, the model scores {room} at most")
        if size < 1 or not has_visible(text):
            raise BadInput(f"{place}: no sentence with a token that the model scores")
    if is_masked:
        starts = tokenizer.word_starts
        stops = [np.arange(size) + 1 for size in sizes]
        if masking != "token":
            stops = [
                word_stops(text, starts[tokens], offsets)
                for text, (tokens, offsets) in zip(texts, encoded, strict=True)
            ]
        scores = score_masked(model, ids, stops)
    else:
        scores = score_rows(model, [with_context(model, tokens) for tokens in ids], sizes)
    for place, score in zip(places, scores, strict=True):
        if not np.isfinite(score):
            raise BadInput(f"{place}: its log-probability is {score}; the parameters are damaged")
    unknown = sum(tokens.count(tokenizer.unk) for tokens in ids)
    return scores, sizes, unknown


def word_stops(text: str, begins_word: np.ndarray, offsets: list[tuple]) -> np.ndarray:
    """Returns int64[size]: for each token of a text, where its word ends, as a number of tokens.

    A word is a run of letters, digits, "_" and combining marks, or a part of it where the vocabulary begins words
    within a run.

    begins_word: bool[size], whether each piece begins a word, see `Tokenizer.word_starts`.
    offsets: where each token begins and ends in the text.
    """
    is_start = begins_word.copy()
    inner = set()  # places in front of which a word has begun that goes on there
    for match in word_pattern().finditer(text):
        inner.update(range(match.start() + 1, match.end()))
    before = (0, 1)
    for number, (start, stop) in enumerate(offsets):
        continues = (
            start < before[1]  # pieces of one character have the same offsets
            or not text[slice(*before)].strip()  # a piece of a space alone begins the word after it
            or start in inner
        )
        is_start[number] |= number == 0 or not continues
        before = (start, stop)
    edges = np.append(np.flatnonzero(is_start), len(is_start))
    return edges[np.searchsorted(edges, np.arange(len(is_start)), side="right")]


@cache
def word_pattern() -> re.Pattern:
    """Returns the pattern of a word: a letter, digit or "_", then more of them and combining marks, as accents and
    vowel signs."""
    characters = map(chr, range(sys.maxunicode + 1))
    marks = [mark for mark in characters if unicodedata.category(mark).startswith("M")]
    return re.compile(rf"\w[\w{''.join(marks)}]*")


def score_rows(model, rows: list, counts) -> np.ndarray:
    """Returns float64[rows]: the log-probability under a causal model, in nats, of the last tokens of each row, given
    those before them.

    rows: ids, at most `longest_row` each. counts: how many of the last tokens are scored; not the first one.
    """

    def run(params, batch, numbers):
        nats = np.asarray(next_nats(model.objective.outputs, params, batch), np.float64)
        for number, values in zip(numbers, nats, strict=True):
            stop = len(rows[number]) - 1
            yield -values[stop - counts[number] : stop].sum()

    texts = [[(row, 0)] for row in rows]
    return np.array(run_texts(model, run, texts, count=ROWS, tokens=TOKENS))


@partial(jax.jit, static_argnums=0)
def next_nats(outputs, params, batch):
    """Returns float32[B, L]: at each position, the nats of the next token."""
    logits = outputs(params, batch)["lm_logits"]
    return base.cross_entropy(logits, jnp.roll(batch["tokens"], -1, axis=1))


def score_masked(model, texts: list[list[int]], stops: list[np.ndarray]) -> np.ndarray:
    """Returns float64[T]: the sum of the log-probabilities under a masked model, in nats, of the tokens of each text,
    each while it and the tokens after it up to its stop are masked.

    texts: ids, in the model's frame at most `longest_row`. stops: int64[size] of each text, see `word_stops`.
    """
    stops = np.concatenate(stops)
    sizes = np.array([*map(len, texts)])
    firsts = np.cumsum(sizes) - sizes
    owners = np.repeat(np.arange(len(texts)), sizes)
    starts = np.arange(len(owners)) - firsts[owners]

    def read(number: int) -> list:
        ids = np.array(texts[owners[number]])
        ids[starts[number] : stops[number]] = model.vocabulary.mask
        return [model.frame.wrap(ids)]

    targets = [[token] for token in chain(*texts)]  # of the masks, only the first is scored
    sizes = sizes[owners] + model.frame.size()
    measured = fill_mask.measure(model, targets, Rows(len(targets), read), sizes, ROWS)
    scores = -np.array([nats[0] for nats, *_ in measured], np.float64)
    return np.add.reduceat(scores, firsts)

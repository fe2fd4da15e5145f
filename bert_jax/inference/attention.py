"""Attention in texts: the probabilities of all layers and heads of a model, and the words of the tokens.

B batch, L length of the queries, M length of the keys.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial

import jax
import numpy as np
from flax import linen as nn

from bert_jax.config import longest_row
from bert_jax.convert import open_model
from bert_jax.data.sources.text import has_visible, replace_surrogates
from bert_jax.errors import BadInput, one_line
from bert_jax.inference import features, fill_mask, token_scores
from bert_jax.inference.batches import MULTIPLE, check_length, make_batch, run_texts
from bert_jax.objectives import base
from bert_jax.pages import attention as page
from bert_jax.tokenizers.special_tokens import target_frame

TEXT, TRANSLATION, CROSS = "text", "translation", "cross"
# {name of a map: what its queries and its keys are tokens of}
SIDES = {
    TEXT: (TEXT, TEXT),
    TRANSLATION: (TRANSLATION, TRANSLATION),
    CROSS: (TRANSLATION, TEXT),
}
TOP = 5  # candidates for each [MASK]


@dataclass(frozen=True)
class Tokens:
    """The tokens of a text, with the special ones around it."""

    pieces: list[str]  # in readable form
    # Without the marks of words, "" if that is all. Of pieces of one character, the last has it, and the others "".
    texts: list[str]
    words: list[int]  # the number of the word of each
    is_special: list[bool]


@dataclass(frozen=True)
class Map:
    """The attention of all layers: weights float32[layers, heads, L, M], how much a query (a row) reads of a key."""

    name: str  # of SIDES
    queries: Tokens
    keys: Tokens
    weights: np.ndarray


@dataclass(frozen=True, eq=False)
class AttentionWeights:
    """The attention in a text. A notebook shows its page.

    tokens: of the text, L with the special ones around it.
    weights: float32[layers, heads, L, L], how much each of them (a row) reads each one (a column).
    maps: these, and of a translator also the attention in the translation, and of that to the text.
    masks: [{piece, probability}] of the most likely pieces, for each [MASK].
    alignment: [{target, source, probability}] of each word of a translation, see `align`.

    `tokens, weights = ...` takes the first two.
    """

    name: str
    maps: list[Map]
    masks: list[list[dict]]
    alignment: list[dict]

    @property
    def tokens(self) -> list[str]:
        return self.maps[0].queries.pieces

    @property
    def weights(self) -> np.ndarray:
        return self.maps[0].weights

    def __iter__(self) -> Iterator:
        return iter((self.tokens, self.weights))

    def _repr_html_(self) -> str:
        return page.inside(page.page(self))

    def values(self) -> dict:
        """Returns it as data for JSON, with probabilities of six digits."""
        values = asdict(self)
        for each in values["maps"]:
            each["weights"] = each["weights"].astype(float).round(6).tolist()
        return values


class Body(nn.Module):
    """The network of an objective, without heads; without a target, the encoder alone."""

    network: nn.Module

    def __call__(self, batch, keys):
        read = self.network if "target_tokens" in batch else self.network.states
        return read(batch, keys)


def compute(model, name, texts: list[str]) -> AttentionWeights:
    """Returns the attention in a text, or in a pair of texts; of a translator, the second text is the translation, by
    default its own.

    name: of the model, for the page and messages.

    Raises BadInput for a text without visible characters, with more tokens than the model has positions, or with more
    probabilities than a page shows; for a second one that the model does not read; and for a network whose attention is
    not captured.
    """
    texts = replace_surrogates(texts)
    for text in texts:
        if not has_visible(text):
            raise BadInput(f"{text!r}: has no text")
    row = read_row(model, texts)
    check_length(model, row[0], repr(texts[0][:40]))
    sides = {TEXT: row[0]}
    if model.can("translate"):
        sides[TRANSLATION] = read_target(model, row, texts[1:])
        check_length(model, sides[TRANSLATION], repr(texts[-1][:40]))
    size = model.config.model
    pairs = [(sides[a], sides[b]) for a, b in SIDES.values() if {a, b} <= sides.keys()]
    heads = size.get("layers", 1) * size.get("heads", 1)
    count = heads * sum(len(queries) * len(keys) for queries, keys in pairs)
    if count > page.MOST:
        hint = f"at most {page.MOST:,} are shown; shorten the text"
        raise BadInput(f"{len(row[0])} tokens have {count:,} probabilities, {hint}")
    tokens = {side: describe(model.tokenizer, ids) for side, ids in sides.items()}
    maps = []
    for map_name, weights in capture(model, row, sides).items():
        queries, keys = (tokens[side] for side in SIDES[map_name])
        maps.append(Map(map_name, queries, keys, weights))
    masks = []
    if model.can("fill") and model.vocabulary.mask in row[0]:
        open_model.check_can(name, model, "fill")
        [masks] = fill_mask.fill(model, [[row]], TOP)
    alignment = align(maps[-1]) if maps[-1].name == CROSS else []
    return AttentionWeights(str(name), maps, masks, alignment)


# --- Rows -----------------------------------------------------------------------------------------


def read_row(model, texts: list[str]) -> tuple[list[int], list[int]]:
    """Returns the ids and segments of the row of a text or a pair, as the model reads it in other commands."""
    tokenizer = model.tokenizer
    if model.can("fill"):
        return model.frame.wrap(*map(tokenizer.encode_with_masks, texts))
    if model.can("translate"):
        texts = texts[:1]
    rows = tokenizer.encode(texts)
    if not model.can("continue"):
        return model.frame.wrap(*rows)
    if len(rows) > 1:
        raise BadInput(f"{texts[1][:40]!r}: a causal LM reads one text")
    ids = token_scores.with_context(model, rows[0])
    return ids, [0] * len(ids)


def read_target(model, source: tuple, texts: list[str]) -> list[int]:
    """Returns the ids of a translation that the decoder reads: that of a text, or else the model's own."""
    frame = target_frame(model.config.model.name).ids(model.vocabulary._asdict())
    if texts:
        [ids] = model.tokenizer.encode(texts)
        return [*frame.begin, *ids]
    outputs = jax.jit(model.objective.outputs)
    [arrays] = run_texts(model, lambda params, batch, _: [outputs(params, batch)], [[source]])
    ids = arrays["translations"][0, 0, : arrays["lengths"][0, 0]].tolist()
    ids = [*frame.begin, *(number for number in ids if number not in frame.end)]
    return ids[: longest_row(model.config)]  # without an end, the last piece is not read


# --- Probabilities --------------------------------------------------------------------------------


def capture(model, row: tuple, sides: dict) -> dict[str, np.ndarray]:
    """Returns {name of a map: float32[layers, heads, L, M]}, in the order of SIDES.

    row: ids and segments of the text. sides: {TEXT or TRANSLATION: ids}.

    Raises BadInput for a network whose attention is not captured.
    """
    body = Body(features.network_of(model))
    target = {}
    if ids := sides.get(TRANSLATION):
        length = MULTIPLE * -(-len(ids) // MULTIPLE)
        arrays = make_batch([[(ids, 0)]], length, model.vocabulary.pad)
        names = "tokens", "positions", "sequence_ids"
        target = {f"target_{name}": arrays[name] for name in names}

    def run(params, batch, numbers):
        return [read(body, params, batch | target)]

    maps = {}
    try:
        [arrays] = run_texts(model, run, [[row]])
        for name, paths in find_layers(arrays).items():
            rows, columns = (len(sides[side]) for side in SIDES[name])
            weights = np.stack([arrays[path][0] for path in paths])
            maps[name] = weights[:, :, :rows, :columns]
            # Other keys than tokens, as of windows, are rarely as many.
            is_square = name == CROSS or weights.shape[2] == weights.shape[3]
            if not is_square or not np.allclose(maps[name].sum(axis=-1), 1, atol=1e-2):
                raise ValueError("the tokens of a layer are not those of a row")
    except (BadInput, ValueError) as error:
        refusal = f"model.name={model.config.model.name}: its attention is not captured"
        raise BadInput(f"{refusal} ({one_line(error)})") from None
    return maps


@partial(jax.jit, static_argnums=0)
def read(body: Body, params, batch) -> dict:
    """Returns {path of a layer: float32[B, heads, L, M]}. Raises BadInput if it is not captured."""
    capture = base.from_module(body).capture
    return capture(params, batch, lambda module, name: name == "probabilities")[1]


def find_layers(paths: Iterable[str]) -> dict[str, list[str]]:
    """Returns {name of a map: the paths of its layers, in their order}. paths: of `capture`."""
    layers = {name: [] for name in SIDES}
    for path in sorted(paths, key=lambda path: [*map(int, re.findall(r"\d+", path))]):
        name = TEXT
        if "/context/" in path:
            name = CROSS
        elif "/decoder/" in path:
            name = TRANSLATION
        layers[name].append(path)
    return {name: paths for name, paths in layers.items() if paths}


# --- Words ----------------------------------------------------------------------------------------


def describe(tokenizer, ids: list[int]) -> Tokens:
    """Returns the tokens of a row. A word is a piece that begins one, and those after it that do not."""
    special = {number for name, number in tokenizer.special.items() if name != "unk"}
    is_special = np.isin(ids, [*special])
    starts = tokenizer.word_starts[ids]
    if tokenizer.ends:  # they mark the last piece of a word
        starts = np.roll(starts, 1)
    starts |= is_special | np.roll(is_special, 1)
    pieces = [*map(tokenizer.readable, ids)]
    texts = []
    first = 0  # piece of a word
    for index, number in enumerate(ids):
        first = index if starts[index] else first
        word = tokenizer.decode_pieces(ids[first : index + 1]).strip()
        text = word[len("".join(texts[first:])) :]
        if number in tokenizer.added_ids:
            text = pieces[index]
        elif word.endswith("\ufffd"):  # the first bytes of a character
            text = ""
        texts.append(text)
    return Tokens(pieces, texts, np.cumsum(starts).tolist(), is_special.tolist())


def align(cross: Map) -> list[dict]:
    """Returns [{target, source, probability}]: for each word of a translation, the word of the text that it reads most.

    As in arXiv:1909.02074, the mean of all heads of the layer before the last one, where the model predicts a piece;
    of a word, the mean of its pieces, and in the text their sum.
    """
    layer = max(0, len(cross.weights) - 2)
    shares = cross.weights[layer].mean(axis=0)
    result = []
    for target, positions in find_words(cross.queries):
        # A piece is predicted at the one before it.
        row = shares[np.array(positions) - 1].mean(axis=0)
        sources = [(float(row[places].sum()), text) for text, places in find_words(cross.keys)]
        share, source = max(sources, default=(0.0, ""))
        result.append({"target": target, "source": source, "probability": round(share, 3)})
    return result


def find_words(tokens: Tokens) -> list[tuple[str, list[int]]]:
    """Returns the text of each word that is no special token, and the positions of its pieces."""
    words = {}
    for position, word in enumerate(tokens.words):
        if not tokens.is_special[position]:
            words.setdefault(word, []).append(position)
    return [("".join(tokens.texts[place] for place in places), places) for places in words.values()]

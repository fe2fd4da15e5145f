"""Attention in texts: the probabilities of all layers and heads of a model, and the words of the tokens.

B batch, L length of the queries, M length of the keys.
"""

import math
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from bert_jax.convert import open_model
from bert_jax.data.sources.text import has_visible, replace_surrogates
from bert_jax.errors import BadInput
from bert_jax.inference import fill_mask, token_scores
from bert_jax.inference.batches import MULTIPLE, check_length, make_batch, run_texts
from bert_jax.models import base as models
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
BYTES = re.compile(r"<0x[0-9A-F]{2}>|.*\ufffd.*", re.DOTALL)  # pieces that are no whole characters
MOST_PIECES = 8  # of a character, or of several that share pieces


class Tokens(NamedTuple):
    """The tokens of a text, with the special ones around it."""

    pieces: list[str]  # in readable form
    # Without the marks of words. Of several pieces of one character, the first has it, and the others "".
    texts: list[str]
    words: list[int]  # the number of the word of each
    is_special: list[bool]


class Map(NamedTuple):
    """The attention of all layers: weights float32[layers, heads, L, M], how much a query (a row) reads of a key."""

    name: str  # of SIDES
    queries: Tokens
    keys: Tokens
    weights: np.ndarray


@dataclass(frozen=True)
class AttentionWeights:
    """The attention in a text. A notebook shows its page.

    tokens: of the text, L with the special ones around it.
    weights: float32[layers, heads, L, L], how much each of them (a row) reads each one (a column).
    maps: these, and of a translator also the attention in the translation, and of that to the text.
    masks: [{position, candidates: [{piece, probability}]}] of each [MASK].
    alignment: [{target, source, probability}] of each word of a translation, see `align`.

    `tokens, weights = ...` takes the first two.
    """

    name: str
    maps: list[Map]
    masks: list[dict]
    alignment: list[dict]

    @property
    def tokens(self) -> list[str]:
        return self.maps[0].queries.pieces

    @property
    def weights(self) -> np.ndarray:
        return self.maps[0].weights

    def __iter__(self) -> Iterator:
        return iter((self.tokens, self.weights))

    def page(self) -> str:
        """Returns it as a page."""
        return page.page(self)

    def _repr_html_(self) -> str | None:
        if count_weights(self.maps) <= page.MOST:
            return page.inside(self.page())
        return None

    def values(self) -> dict:
        """Returns it as data for JSON, with probabilities of six digits."""
        maps = []
        for each in self.maps:
            sides = {"queries": each.queries._asdict(), "keys": each.keys._asdict()}
            weights = each.weights.astype(float).round(6).tolist()
            maps.append({"name": each.name} | sides | {"weights": weights})
        return {"maps": maps, "masks": self.masks, "alignment": self.alignment}


def summarize(result: AttentionWeights) -> list[str]:
    """Returns lines: the size of each map, the candidates for each [MASK], and the alignment."""
    lines = []
    for each in result.maps:
        layers, heads, queries, keys = each.weights.shape
        size = f"{queries} x {keys} tokens"
        lines.append(f"{page.NAMES[each.name]}: {layers} layers, {heads} heads, {size}")
    lines += fill_mask.describe([mask["candidates"] for mask in result.masks])
    for pair in result.alignment:
        lines.append(f"  {pair['target']} <- {pair['source']} {pair['probability']:.3f}")
    return lines


def count_weights(maps: Iterable[Map]) -> int:
    """Returns the number of probabilities."""
    return sum(each.weights.size for each in maps)


class Body(nn.Module):
    """The network of an objective, without heads."""

    network: nn.Module

    def __call__(self, batch, keys):
        has_target = "target_tokens" in batch
        if has_target or not hasattr(self.network, "states"):
            return self.network(batch, keys)
        return self.network.states(batch, keys)


def compute(model, name, texts: list[str], most: int = sys.maxsize) -> AttentionWeights:
    """Returns the attention in a text, or in a pair of texts; of a translator, the second text is the translation, by
    default its own.

    name: of the model, for the page and messages.
    most: probabilities.

    Raises BadInput for a text without visible characters or with more tokens than the model has positions, for a
    second one that the model does not read, for a network whose attention is not captured, and for more probabilities.
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
    arrays = capture(model, row, sides, most)
    tokens = {side: describe(model.tokenizer, ids) for side, ids in sides.items()}
    maps = []
    for map_name, weights in arrays.items():
        queries, keys = (tokens[side] for side in SIDES[map_name])
        weights = weights[..., : len(queries.pieces), : len(keys.pieces)]
        maps.append(Map(map_name, queries, keys, weights))
    alignment = align(maps[-1]) if CROSS in arrays else []
    return AttentionWeights(str(name), maps, predict_masks(model, name, row), alignment)


# --- Rows -----------------------------------------------------------------------------------------


def read_row(model, texts: list[str]) -> tuple[list[int], list[int]]:
    """Returns the ids and segments of the row of a text or a pair, as the model reads it in other commands."""
    tokenizer = model.tokenizer
    if model.can("translate"):
        return model.frame.wrap(*tokenizer.encode(texts[:1]))
    if model.can("continue"):
        if len(texts) > 1:
            raise BadInput(f"{texts[1][:40]!r}: a causal LM reads one text")
        [ids] = tokenizer.encode(texts)
        ids = token_scores.with_context(model, ids)
        return ids, [0] * len(ids)
    if model.can("fill"):
        return model.frame.wrap(*map(tokenizer.encode_with_masks, texts))
    return model.frame.wrap(*tokenizer.encode(texts))


def read_target(model, source: tuple, texts: list[str]) -> list[int]:
    """Returns the ids of a translation that the decoder reads: that of a text, or else the model's own."""
    frame = target_frame(model.config.model.name).ids(model.vocabulary._asdict())
    if texts:
        [ids] = model.tokenizer.encode(texts)
        return [*frame.begin, *ids]
    outputs = jax.jit(model.objective.outputs)

    def run(params, batch, numbers):
        arrays = jax.device_get(outputs(params, batch))
        return [*zip(arrays["translations"], arrays["lengths"], strict=True)]

    [(hypotheses, lengths)] = run_texts(model, run, [[source]])
    ids = hypotheses[0, : lengths[0]].tolist()
    return [*frame.begin, *(number for number in ids if number not in frame.end)]


def predict_masks(model, name, row: tuple) -> list[dict]:
    """Returns [{position, candidates: [{piece, probability}]}] of each [MASK] of a row."""
    positions = [
        position for position, number in enumerate(row[0]) if number == model.vocabulary.mask
    ]
    if not (positions and model.can("fill")):
        return []
    open_model.check_can(name, model, "fill")
    targets = [[0] * len(positions)]
    [(_, *pieces)] = fill_mask.measure(model, targets, [[row]], top=TOP)
    candidates = map(partial(fill_mask.describe_pieces, model), *pieces)
    pairs = zip(positions, candidates, strict=True)
    return [{"position": position, "candidates": pieces} for position, pieces in pairs]


# --- Probabilities --------------------------------------------------------------------------------


def capture(model, row: tuple, sides: dict, most: int) -> dict[str, np.ndarray]:
    """Returns {name of a map: float32[layers, heads, L, M]}, with padding.

    row: ids and segments of the text. sides: {TEXT or TRANSLATION: ids}.

    Raises BadInput for a network whose attention is not captured, and for more than `most` probabilities.
    """
    name = model.config.model.name
    network = getattr(model.objective.module, models.NETWORK, None)
    if network is None:
        raise BadInput(refusal(name))
    target = {}
    if ids := sides.get(TRANSLATION):
        length = MULTIPLE * -(-len(ids) // MULTIPLE)
        arrays = make_batch([[(ids, 0)]], length, model.vocabulary.pad)
        names = "tokens", "positions", "sequence_ids"
        target = {f"target_{name}": arrays[name] for name in names}
    compute = partial(read, Body(network), name)

    def run(params, batch, numbers):
        batch = batch | target
        count = 0
        for map_name, array in jax.eval_shape(compute, params, batch).items():
            _, layers, heads, *_ = array.shape
            count += layers * heads * math.prod(len(sides[side]) for side in SIDES[map_name])
        if count > most:
            size = f"{len(row[0])} tokens have {count:,} probabilities"
            raise BadInput(f"{size}, a page shows {most:,} at most; shorten the text")
        return [jax.device_get(compute(params, batch))]

    [arrays] = run_texts(model, run, [[row]])
    return {map_name: array[0] for map_name, array in arrays.items()}


@partial(jax.jit, static_argnums=(0, 1))
def read(body: Body, name: str, params, batch) -> dict:
    """Returns {name of a map: float32[B, layers, heads, L, M]}. name: that of the model, for messages."""
    try:
        _, arrays = base.from_module(body).capture(params, batch, is_chosen)
    except BadInput:
        raise BadInput(refusal(name)) from None
    lengths = {TEXT: batch["tokens"].shape[1]}
    if "target_tokens" in batch:
        lengths[TRANSLATION] = batch["target_tokens"].shape[1]
    maps = {}
    for map_name, paths in find_layers(arrays).items():
        expected = tuple(lengths.get(side) for side in SIDES[map_name])
        shapes = {arrays[path].shape for path in paths}
        if {shape[2:] for shape in shapes} != {expected} or len(shapes) > 1:
            raise BadInput(refusal(name))
        maps[map_name] = jnp.stack([arrays[path] for path in paths], axis=1)
    return maps


def is_chosen(module, name: str) -> bool:
    """Chooses the probabilities of attention, for `capture`."""
    return name == "probabilities"


def refusal(name: str) -> str:
    """Returns the message for a model whose attention cannot be shown."""
    need = "expected `probabilities` [B, H, L, L] of each layer, as of layers/blocks.py"
    return f"model.name={name}: its attention is not captured; {need}"


def find_layers(paths: Iterable[str]) -> dict[str, list[str]]:
    """Returns {name of a map: the paths of its layers, in their order}.

    A block whose part `context` attends to a second sequence belongs to a decoder.

    paths: of `capture`.
    """
    parts = {}
    for path in sorted(paths, key=lambda path: [*map(int, re.findall(r"\d+", path))]):
        block, _, part = path.partition("/probabilities/")[0].rpartition("/")
        parts[path] = block, part
    decoder = {block for block, part in parts.values() if part == "context"}
    layers = {TEXT: [], TRANSLATION: [], CROSS: []}
    for path, (block, part) in parts.items():
        side = TEXT
        if block in decoder:
            side = CROSS if part == "context" else TRANSLATION
        layers[side].append(path)
    return {side: paths for side, paths in layers.items() if paths}


# --- Words ----------------------------------------------------------------------------------------


def describe(tokenizer, ids: list[int]) -> Tokens:
    """Returns the tokens of a row. A word is a piece that begins one, and those after it that do not."""
    special = {number for name, number in tokenizer.special.items() if name != "unk"}
    is_special = np.array([number in special for number in ids])
    starts = tokenizer.word_starts[ids]
    if tokenizer.ends:  # they mark the last piece of a word
        starts = np.roll(starts, 1)
    starts |= is_special | np.roll(is_special, 1)
    words = np.cumsum(starts) - starts[0]
    pieces = [tokenizer.readable(number) for number in ids]
    texts = join_bytes(tokenizer, ids, [without_marks(tokenizer, piece) for piece in pieces])
    return Tokens(pieces, texts, words.tolist(), is_special.tolist())


def without_marks(tokenizer, piece: str) -> str:
    """Returns a readable piece without what marks words, unless that is all of it."""
    text = piece.removeprefix(tokenizer.continues).removesuffix(tokenizer.ends)
    if tokenizer.mark:
        text = text.removeprefix("▁")
    return text or piece


def join_bytes(tokenizer, ids: list[int], texts: list[str]) -> list[str]:
    """Returns texts in which a character of several pieces is the text of the first one, and "" that of the others."""
    result = []
    while len(result) < len(ids):
        start = len(result)
        text = texts[start]
        character = []
        if BYTES.fullmatch(text):
            character = read_character(tokenizer, ids[start : start + MOST_PIECES])
        result += character or [text]
    return result


def read_character(tokenizer, ids: list[int]) -> list[str]:
    """Returns the text of the fewest first pieces that are whole characters, then "" for each of the others; [] if
    there are none."""
    for count in range(1, len(ids) + 1):
        text = tokenizer.decode_pieces(ids[:count])
        if "\ufffd" not in text:
            return [text.strip(), *[""] * (count - 1)]
    return []


def align(cross: Map) -> list[dict]:
    """Returns [{target, source, probability}]: for each word of a translation, the word of the text that it reads most.

    As in arXiv:1909.02074, the mean of all heads of the layer before the last one, where the model predicts a piece;
    of a word, the mean of its pieces, and in the text their sum.
    """
    layer = max(0, len(cross.weights) - 2)
    shares = cross.weights[layer].mean(axis=0)
    sources = positions_of_words(cross.keys)
    result = []
    for target, positions in positions_of_words(cross.queries):
        rows = shares[np.array(positions) - 1]  # each piece is predicted at the one before it
        sums = [float(rows[:, columns].sum(axis=1).mean()) for _, columns in sources]
        best = int(np.argmax(sums))
        source = sources[best][0]
        result.append({"target": target, "source": source, "probability": sums[best]})
    return result


def positions_of_words(tokens: Tokens) -> list[tuple[str, list[int]]]:
    """Returns the text of each word that is no special token, and the positions of its pieces."""
    words = {}
    for position, word in enumerate(tokens.words):
        if not tokens.is_special[position]:
            words.setdefault(word, []).append(position)
    return [("".join(tokens.texts[place] for place in places), places) for places in words.values()]

"""Generation: continues prompts by a causal LM, greedily, by draws, or by a beam search.

B rows of prompts.
"""

import itertools
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import NamedTuple

import jax
import numpy as np

from bert_jax import prng
from bert_jax.errors import BadInput
from bert_jax.inference.batches import run_texts
from bert_jax.inference.token_scores import with_context
from bert_jax.layers import decoding
from bert_jax.layers.dense import MASKED
from bert_jax.runs import open_run
from bert_jax.tokenizers.special_tokens import Vocabulary

ROWS = 16  # prompts that are continued at once
TOKENS = 100


class Request(NamedTuple):
    """How prompts are continued. Each field is an option of `predict`."""

    tokens: int = 0  # new ones at most; 0: TOKENS, or as many as its positions leave a prompt
    temperature: float = 0.0  # divides the logits of draws; 0: the most probable tokens are taken
    top_k: int = 0  # see decoding.Cut
    top_p: float = 1.0
    samples: int = 1  # continuations of each prompt
    seed: int = 0  # of the draws
    stop: tuple[str, ...] = ()  # a text ends in front of the first of these
    # hypotheses of a beam search by the rule of transformers, see decoding.Search; 0: none
    beams: int = 0
    length_penalty: float = 1.0


DRAWS = {"temperature", "top_k", "top_p", "samples", "seed"}
# Of the values that are not the defaults.
RANGES = {
    "temperature": (1e-3, 1e6),  # logits that are divided by less overflow
    "tokens": (1, 1e9),
    "samples": (1, 1e9),
    "beams": (1, 1e9),
    "top_k": (0, 1e9),
    "top_p": (1e-6, 1),
    "length_penalty": (0, 1e3),
}


def make_request(options: dict) -> Request:
    """Returns the Request of the options that are given. Any of DRAWS makes the temperature 1, unless it is given.

    Raises BadInput for an unknown option, a value out of its range, and options of draws in a beam search, or of that
    without it.
    """
    for name in options.keys() - Request._fields:
        raise BadInput(f"{option(name)}: expected one of {', '.join(Request._fields)}")
    draws = sorted(DRAWS & options.keys())
    if draws:
        options = {"temperature": 1.0} | options
    request = Request(**options)
    if request.beams and draws:
        raise BadInput(f"{option(draws[0])}: there are no draws in a beam search")
    if "length_penalty" in options and not request.beams:
        raise BadInput("--length-penalty: needs --beam")
    if "" in request.stop:
        raise BadInput("--stop '': expected a string that is not empty")
    for name, (least, most) in RANGES.items():
        value = getattr(request, name)
        default = Request._field_defaults[name]
        if value != default and not least <= value <= most:
            expected = f"expected {default:g} or {least:g} to {most:g}"
            raise BadInput(f"{option(name)} {value}: {expected}")
    return request


def option(name: str) -> str:
    """Returns the option of a field of Request."""
    return "--" + name.replace("_", "-").replace("beams", "beam")


def generate(model, prompts: list[str], request: Request) -> list[list[str]]:
    """Returns the continuations of each prompt, without it. They end in front of [SEP] or of a string of the request,
    or at its number of tokens. An empty prompt begins as a text does, see `token_scores.with_context`.

    A draw is a function of four numbers: the seed, and which prompt, sample and token it is for. Other prompts change a
    text only by the rounding of its logits. Prompts of similar lengths share a batch.

    Raises BadInput as `plan_tokens` does, and if there is no token for an empty prompt.
    """
    encoded = [ids or with_context(model, []) for ids in model.tokenizer.encode(prompts)]
    if [] in encoded:
        raise BadInput("an empty prompt: the vocabulary has no [SEP] that begins it")
    request = request._replace(tokens=plan_tokens(model, prompts, encoded, request))
    pairs = [*itertools.product(range(len(prompts)), range(request.samples))]

    def run(params, batch, numbers):
        rows = [Continuation(model, encoded[pairs[number][0]], request) for number in numbers]
        keys = [prng.key(request.seed, *pairs[number]) for number in numbers]
        for tokens in steps(model, request, params, batch, np.array(keys)):
            for row, token in zip(rows, tokens.tolist(), strict=True):
                row.append(token)
            if not any(row.is_open for row in rows):
                break
        return [row.text for row in rows]

    rows = [[(encoded[prompt], 0)] for prompt, _ in pairs]
    texts = run_texts(model, run, rows, count=ROWS)
    return [[*part] for part in np.reshape(np.array(texts, object), (-1, request.samples))]


def plan_tokens(model, prompts: list[str], encoded: list[list[int]], request: Request) -> int:
    """Returns the number of new tokens at most of the prompt that leaves the most positions; see Continuation.

    Raises BadInput if a prompt and the tokens of the request, or one, exceed the positions that training has reached.
    """
    positions = open_run.trained_positions(model)
    for prompt, ids in zip(prompts, encoded, strict=True):
        left = positions - len(ids)
        if left < max(1, request.tokens):
            raise BadInput(
                f"{prompt[:40]!r} has {len(ids)} tokens, which leaves {max(0, left)} of {positions}"
                f" trained positions for {request.tokens or 'any'} new tokens"
            )
    return request.tokens or min(TOKENS, positions - min(map(len, encoded)))


def steps(model, request: Request, params, batch: dict, keys: np.ndarray) -> Iterator[np.ndarray]:
    """Yields int32[B], the next tokens of all rows.

    Special tokens but [UNK] and [SEP] are never among the tokens. Those after the end of a row have no meaning.

    batch: of prompts. keys: uint32[B], of their draws.
    """
    vocabulary = model.vocabulary
    request = request._replace(samples=1, seed=0, stop=())  # which decide no program
    start, advance, search = programs(model.objective.method, vocabulary, request)
    caches = start(params, batch)
    sizes = batch["sequence_ids"].sum(axis=1)
    tokens = np.take_along_axis(batch["tokens"], sizes[:, None] - 1, axis=1)[:, 0]
    if request.beams:
        limits = open_run.trained_positions(model) - sizes
        yield from np.asarray(search(params, tokens, caches, limits)).T
        return
    for number in range(1, request.tokens + 1):
        tokens, caches = advance(params, tokens, caches, keys, np.uint32(number))
        yield np.asarray(tokens)


@lru_cache(maxsize=8)
def programs(method: Callable, vocabulary: Vocabulary, request: Request) -> tuple[Callable, ...]:
    """Returns the jitted functions (start, advance, search) of a generation. method: see Objective."""
    special = {vocabulary.pad, vocabulary.cls, vocabulary.mask, vocabulary.end, vocabulary.bos}
    special -= {None, vocabulary.sep}
    banned = np.array([*special], np.int32)

    def step(params, tokens, caches):
        logits, caches = method(params, "step")(tokens, caches)
        return logits.at[:, banned].set(MASKED), caches

    @jax.jit
    def start(params, batch):
        room = request.tokens
        if request.beams:
            room = decoding.rooms(room)[0] * request.beams
        return method(params, "start")(batch, batch["tokens"].shape[1] + room)

    @partial(jax.jit, donate_argnames="caches")
    def advance(params, tokens, caches, keys, number):
        logits, caches = step(params, tokens, caches)
        if request.temperature:
            cut = decoding.Cut(request.temperature, request.top_k, request.top_p)
            return decoding.draw(logits, number, keys, cut), caches
        return logits.argmax(axis=-1), caches

    @jax.jit
    def search(params, tokens, caches, limits):
        rule = decoding.Search(request.beams, request.length_penalty, "transformers")
        end = -1 if vocabulary.sep is None else vocabulary.sep
        stop = decoding.Stop(end, request.tokens, limits)
        return decoding.beam(partial(step, params), caches, tokens, stop, rule).tokens[:, 0]

    return start, advance, search


class Continuation:
    """The text that continues a prompt, token by token.

    ids: the tokens of the prompt and of the text.
    text: the continuation, once it has ended.
    is_open: whether more tokens follow.
    """

    def __init__(self, model, prompt: list[int], request: Request):
        self.decode = model.tokenizer.decode
        self.end = model.vocabulary.sep
        self.ids = [*prompt]
        self.most_ids = min(len(prompt) + request.tokens, open_run.trained_positions(model))
        self.prompt_size = len(self.decode(prompt))  # in characters
        self.stop = request.stop
        self.text = ""
        self.is_open = True

    def append(self, token: int) -> None:
        """Appends a token to a text that is open, or ends it if it is the end token."""
        if not self.is_open:
            return
        if token != self.end:
            self.ids.append(token)
        self.is_open = token != self.end and len(self.ids) < self.most_ids
        if self.is_open and not self.stop:
            return
        self.text = self.decode(self.ids)[self.prompt_size :]
        starts = [self.text.find(stop) for stop in self.stop if stop in self.text]
        if starts:
            self.is_open = False
            self.text = self.text[: min(starts)]

"""Sentences in the CoNLL format, as those of the package's token_classification, in words with their characters.

A word is one token: the piece that it is, or [UNK]. A batch has, besides the arrays of token_classification,

    characters    int32[B, L, M]    of each word, and of the marks of a sentence; see characters.py

A file NAME.json has the number of sentences to make, {"sentences": number}, with names of persons and places that only
their characters tell apart.

B rows, L length, M characters of a word, W words of a split.
"""

import json
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
from elmo import characters

from bert_jax import prng
from bert_jax.checks import require
from bert_jax.data import batch
from bert_jax.tasks import token_classification
from bert_jax.tasks.supervised import examples
from bert_jax.tasks.supervised.examples import Encoded, Example
from bert_jax.tasks.token_classification import conll
from bert_jax.tokenizers.special_tokens import Frame

DEFAULTS = token_classification.DEFAULTS | {
    "data": str(Path(__file__).parent / "data"),
    "train": "train.json",
    "dev": ("dev.json",),
    "characters": 24,  # of a word, two marks included; that of the language model
}
assume = token_classification.assume
fill = token_classification.fill
FILLERS = (
    "the of and to in said that it was on for from with when a small new house day old".split()
)
ENDS = {"person": ("son", "ova", "elli"), "place": ("burg", "ville", "stan")}
SYLLABLES = "ka lo mi ne ru sa ti vo be du fa gi ho ju pe ra".split()


def check(config):
    token_classification.check(config)
    require(config.task.characters >= 8, "task.characters", config, "expected at least 8")


def load(config, path) -> list[Example]:
    """Reads the sentences of a file, or makes those that it asks for, always the same."""
    if Path(path).suffix != ".json":
        return conll.load(config, path)
    key = prng.key(*map(ord, Path(path).stem))
    draw = np.random.Generator(np.random.Philox(key))
    count = json.loads(Path(path).read_text())["sentences"]
    return [make_sentence(draw, f"{path}:{number}") for number in range(1, count + 1)]


def make_sentence(draw, location: str) -> Example:
    """Returns a sentence of words in any order, with names of one or two words. draw: a NumPy generator."""
    words = []
    for _ in range(draw.integers(4, 9)):
        if draw.random() < 0.6:
            words.append(Example(location, [str(draw.choice(FILLERS))], "O"))
            continue
        kind = str(draw.choice([*ENDS]))
        for place in range(draw.integers(1, 3)):
            stem = "".join(draw.choice(SYLLABLES, draw.integers(1, 4)))
            name = stem.capitalize() + str(draw.choice(ENDS[kind]))
            words.append(Example(location, [name], f"{'I' if place else 'B'}-{kind}"))
    return Example(location, [word.texts[0] for word in words], words)


def encode(config, tokenizer, sentences: list[Example], names: list[str]) -> Encoded:
    """Converts sentences to ids, targets int32[W] and characters: those of words, and then of the places around them,
    uint16[W + 3, M]."""
    size = config.task.characters
    pieces = examples.encode_texts(tokenizer, [sentence.texts for sentence in sentences])
    ids = [
        [[word[0] if len(word) == 1 else tokenizer.unk for word in sentence]] for sentence in pieces
    ]
    targets = [token_classification.target(config, sentence, names) for sentence in sentences]
    codes = [characters.encode(word, size) for sentence in sentences for word in sentence.texts]
    codes += [characters.mark(characters.BEGIN, size), characters.mark(characters.END, size)]
    codes.append([0] * size)
    arrays = {"targets": np.array([*chain(*targets)], np.int32)}
    return Encoded(ids, arrays | {"characters": np.array(codes, np.uint16)})


def make(config, store=None):
    """Returns the dataset of token_classification, with characters."""
    dataset = token_classification.make(config, store)

    def shapes(phase, rows: int) -> dict:
        shape = rows, phase.length, config.task.characters
        return dataset.shapes(phase, rows) | batch.structs({"characters": shape})

    def make_batch(phase, split, rows, keys) -> dict:
        from bert_jax.data import assemble  # imports TensorFlow

        part = store.splits[split]
        words = len(part.tokens)
        around = Frame((words,), (), (words + 1,))
        places = np.arange(words), rows, phase.length, around, words + 2
        numbers = assemble.gather(*places, paired=False)["tokens"]
        codes = assemble.look_up(part.path / "characters.npy", numbers)
        arrays = dataset.make(phase, split, rows, keys)
        return arrays | {"characters": assemble.as_ids(codes)}

    def ranges(vocabulary: int) -> dict:
        return dataset.ranges(vocabulary) | {"characters": characters.SIZE}

    return replace(dataset, shapes=shapes, make=make_batch, ranges=ranges)


EXAMPLES = replace(token_classification.EXAMPLES, load=load, encode=encode)

"""Rows by the original algorithm, one sentence and one token at a time (google-research/bert,
create_pretraining_data.py), with our random draws."""

import random

import numpy as np

from bert_jax import prng
from bert_jax.tasks.text import pair_rows


class HashDraws:
    """The random draws of pair_rows.py, one at a time."""

    def __init__(self, split, rules, epoch):
        self.key = lambda purpose: pair_rows.purpose_key(split, rules, epoch, purpose)
        # The end that truncation removes a token from is random in the original; tests compare its share.
        self.generator = random.Random(0)

    def bits(self, purpose, *numbers):
        bits = self.key(purpose)
        for number in numbers:
            bits = prng.fold(bits, np.uint32(number))
        return bits

    def target(self, document, room, short_rate):
        if prng.uniform(self.bits("target_length", document, 0)) < short_rate:
            return 2 + int(prng.below(self.bits("target_length", document, 1), room - 1)[0])
        return room

    def a_size(self, document, start, size):
        return 1 + int(prng.below(self.bits("sentences_in_a", document, start), size - 1)[0])

    def coin(self, purpose, document, start):
        return self.bits(purpose, document, start)[0] < 1 << 31

    def place(self, document, start, documents):
        bits = self.bits("random_document", document, start)
        other = int(prng.below(bits, len(documents) - 1)[0])
        other += other >= document
        bits = self.bits("random_start", document, start)
        return other, int(prng.below(bits, len(documents[other]))[0])


def flat(sentences):
    return [token for sentence in sentences for token in sentence]


def original(documents, rules, draws):
    """Returns (A, B, label, A before truncation, B before truncation) for every row."""
    room = rules.length - rules.special
    rows = []
    for number, document in enumerate(documents):
        target = draws.target(number, room, rules.short_rate)
        chunk = []
        start = here = 0
        while here < len(document):
            chunk.append(document[here])
            if here == len(document) - 1 or len(flat(chunk)) >= target:
                a, b, label, unused = pair(documents, number, start, chunk, target, rules, draws)
                rows.append((*truncate(a, b, room, draws.generator), label, a, b))
                here -= unused
                chunk = []
                start = here + 1
            here += 1
    return rows


def pair(documents, number, start, chunk, target, rules, draws):
    """Returns (A, B, label, number of sentences of the chunk that are put back)."""
    if rules.pair_task == "none":
        return flat(chunk), [], 0, 0
    a_size = draws.a_size(number, start, len(chunk)) if len(chunk) > 1 else 1
    a = flat(chunk[:a_size])
    after_a = chunk[a_size:]
    if len(chunk) == 1 or (rules.pair_task == "nsp" and draws.coin("random_pair", number, start)):
        other, first = draws.place(number, start, documents)
        b = []
        for sentence in documents[other][first:]:
            b += sentence
            if len(b) >= target - len(a):
                break
        return a, b, 1, len(after_a)
    if rules.pair_task == "sop" and draws.coin("swap", number, start):
        return flat(after_a), a, 1, 0
    return a, flat(after_a), 0, 0


def truncate(a, b, room, generator):
    a = list(a)
    b = list(b)
    while len(a) + len(b) > room:
        longer = a if len(a) > len(b) else b
        longer.pop(0 if generator.random() < 0.5 else -1)
    return a, b

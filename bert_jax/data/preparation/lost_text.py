"""Counts what a tokenizer loses of a text, in a sample of its sentences, and the special tokens that are text."""

import random
import unicodedata
from collections import Counter

from bert_jax.data.sources.problems import add_problem
from bert_jax.tokenizers.special_tokens import TEXT_END

SAMPLE = 10_000  # characters, about
PART = 500  # characters
LITERAL = "literal "  # begins the reason for special tokens in the counts of problems


def split_parts(text: str) -> list[str]:
    """Returns the parts of a text of which a sample is taken."""
    return [text[first : first + PART] for first in range(0, len(text), PART)]


def add_literals(text: str, tokenizer, separator: str, problems: Counter) -> None:
    """Counts the special tokens of the vocabulary, and others that programs put into texts, where they are text; also
    the separator, if it is not ''."""
    for token in {TEXT_END, "<unk>", separator, *tokenizer.spellings.values()} - {""}:
        for _ in range(text.count(token)):
            add_problem(problems, LITERAL + token, len(token))


def count_lost(sentences: list[str], tokenizer, is_exact: bool = False) -> dict[str, int]:
    """Returns counts, estimated by a sample: characters without white space, those in no piece but [UNK], and the
    marks, such as accents and vowel signs, that normalizing strips ("मेरे" becomes "मर").

    is_exact: also the characters, white space included, of all sentences, and of those that their pieces do not spell.
    """
    total = sum(map(len, sentences))
    share = min(1, SAMPLE / max(1, total))
    sample = random.Random(0).sample(sentences, round(share * len(sentences)))
    unknown = 0
    altered = 0
    encodings = tokenizer.encode_with_offsets(sample)
    for sentence, (ids, offsets) in zip(sample, encodings, strict=True):
        unknown += count_unknown(tokenizer, sentence, ids, offsets)
        # A tokenizer that adds a space in front of a text has the same pieces for one that begins with a space.
        spellings = sentence, sentence.removeprefix(" ")
        if is_exact and tokenizer.decode_pieces(ids) not in spellings:
            altered += len(sentence)
    text = "".join("".join(sample).split())
    counts = {
        "characters": len(text),
        "unknown_characters": unknown,
        "stripped_marks": count_marks(text) - count_marks(tokenizer.normalize(text)),
    }
    size = sum(map(len, sample))
    if is_exact:
        counts |= {"exact_characters": size, "altered_characters": altered}
    scale = total / max(1, size)
    return {name: round(scale * number) for name, number in counts.items()}


def count_unknown(tokenizer, text: str, ids: list[int], offsets: list[tuple[int, int]]) -> int:
    """Returns how many characters of an encoded text, white space apart, are in no piece but [UNK]."""
    covered = set()
    for number, span in zip(ids, offsets, strict=True):
        # The offsets of a word mark alone are those of the character after it.
        if number != tokenizer.unk and tokenizer.pieces[number] != tokenizer.mark:
            covered.update(range(*span))
    unknown = 0
    for index, character in enumerate(text):
        # Characters that the rules delete, such as those of control, are no loss.
        if character != " " and index not in covered and tokenizer.normalize(character).strip(" ▁"):
            unknown += 1
    return unknown


def count_marks(text: str) -> int:
    """Returns the number of combining marks of a text, also of those in composed characters."""
    decomposed = unicodedata.normalize("NFD", text)
    return list(map(unicodedata.category, decomposed)).count("Mn")

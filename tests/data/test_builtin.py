"""Numbers in words, read back by rules that are written anew, and the data set that is made of them."""

import re

import numpy as np
import pytest
from kits.corpora import config_of

from bert_jax.data.preparation import corpus
from bert_jax.data.sources import tables
from bert_jax.data.sources.number_words import english, german
from bert_jax.errors import BadInput

HARD = {
    0: ("zero", "null"),
    1: ("one", "eins"),
    12: ("twelve", "zwölf"),
    16: ("sixteen", "sechzehn"),
    17: ("seventeen", "siebzehn"),
    21: ("twenty-one", "einundzwanzig"),
    30: ("thirty", "dreißig"),
    66: ("sixty-six", "sechsundsechzig"),
    77: ("seventy-seven", "siebenundsiebzig"),
    100: ("one hundred", "einhundert"),
    101: ("one hundred and one", "einhunderteins"),
    1_001: ("one thousand and one", "eintausendeins"),
    1_100: ("one thousand one hundred", "eintausendeinhundert"),
    21_000: ("twenty-one thousand", "einundzwanzigtausend"),
    101_000: ("one hundred and one thousand", "einhunderteintausend"),
    421_065: (
        "four hundred and twenty-one thousand and sixty-five",
        "vierhunderteinundzwanzigtausendfünfundsechzig",
    ),
    701_801: (
        "seven hundred and one thousand eight hundred and one",
        "siebenhunderteintausendachthunderteins",
    ),
}
NUMBERS = [*range(1, 1_100), *np.random.default_rng(0).integers(1, 1_000_000, 3_000).tolist()]
DIGITS = {
    "en": "one two three four five six seven eight nine".split(),
    "de": "ein zwei drei vier fünf sechs sieben acht neun".split(),
}
TEENS = {
    "en": """ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen
        nineteen""".split(),
    "de": """zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn siebzehn achtzehn
        neunzehn""".split(),
}
TENS = {
    "en": "twenty thirty forty fifty sixty seventy eighty ninety".split(),
    "de": "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split(),
}
# Numbers below a thousand, of the lists' words: hundreds, tens, teens, and the two places of the ones.
PARTS = {
    "en": "(?:(?P<h>D) hundred(?: and (?=.)|$))?(?:(?P<t>T)(?:-(?P<o>D))?|(?P<n>N)|(?P<d>D))?",
    "de": "(?:(?P<h>D)hundert)?(?:(?:(?P<o>D)und)?(?P<t>T)|(?P<n>N)|(?P<d>D))?",
}


def read_part(text: str, language: str) -> int:
    lists = {"D": DIGITS[language], "N": TEENS[language], "T": TENS[language]}
    pattern = PARTS[language]
    for letter, words in lists.items():
        pattern = re.sub(rf"(?<=>){letter}(?=\))", "|".join(words), pattern)
    groups = re.fullmatch(pattern, text).groupdict()
    total = 0
    for name, words, first, unit in (
        ("h", "D", 1, 100),
        ("t", "T", 2, 10),
        ("o", "D", 1, 1),
        ("n", "N", 10, 1),
        ("d", "D", 1, 1),
    ):
        if groups[name]:
            total += unit * (first + lists[words].index(groups[name]))
    return total


def read_english(text: str) -> int:
    """`and` stands in front of the last two digits, if anything else stands in front of it."""
    thousands, _, rest = text.rpartition(" thousand")
    if thousands and rest:
        total = read_part(rest.removeprefix(" and ").removeprefix(" "), "en")
        assert rest.startswith(" and ") == (total < 100)
    else:
        total = read_part(rest, "en")
    return total + 1000 * read_part(thousands, "en")


def read_german(text: str) -> int:
    """One is eins at the end, and ein everywhere else."""
    assert not text.endswith("ein")
    if text.endswith("eins"):
        text = text.removesuffix("s")
    thousands, _, rest = text.rpartition("tausend")
    return 1000 * read_part(thousands, "de") + read_part(rest, "de")


def test_hard_numbers():
    for number, words in HARD.items():
        assert (english(number), german(number)) == words


def test_words_are_read_as_their_numbers():
    for number in NUMBERS:
        assert read_english(english(number)) == number
        assert read_german(german(number)) == number


def test_the_splits_share_no_number_and_both_columns_have_the_same():
    numbers = {}
    for split, size in (("train", 20_000), ("dev", 1_000), ("test", 1_000)):
        rows = tables.read(f"builtin:numbers[{split}]", ["de", "en"])
        numbers[split] = [read_german(german) for _, (german, _) in rows]
        assert numbers[split] == [read_english(english) for _, (_, english) in rows]
        assert len(numbers[split]) == size
    everything = sum(numbers.values(), [])
    assert len({*everything}) == len(everything) and max(everything) < 1_000_000
    assert 450_000 < np.mean(numbers["train"]) < 550_000


def test_it_is_a_corpus_too(tmp_path):
    (source,) = corpus.open_sources(
        config_of(tmp_path, [], "corpus.source=builtin:numbers[dev]", "corpus.field=en")
    )
    texts = [*corpus.materialize(source, None, map).texts({})]
    rows = tables.read("builtin:numbers[dev]", ["en"])
    assert [text.decode() for text in texts] == [text for _, (text,) in rows]


@pytest.mark.parametrize(
    "name, field", [("numbers[dev]", "fr"), ("words", "en"), ("numbers[all]", "en")]
)
def test_other_columns_splits_and_names_are_refused(tmp_path, name, field):
    with pytest.raises(BadInput, match=f"builtin:{name.partition('[')[0]}"):
        tables.read(f"builtin:{name}", [field])
    keys = f"corpus.source=builtin:{name}", f"corpus.field={field}"
    (source,) = corpus.open_sources(config_of(tmp_path, [], *keys))
    with pytest.raises(BadInput, match=f"builtin:{name.partition('[')[0]}"):
        corpus.materialize(source, None, map)

"""Line filters leave out what they say and count it, whatever the script."""

from collections import Counter

import pytest

from bert_jax.data.corpus import Reading, documents
from bert_jax.data.sources.filters import Filters, ends_with_stop, has_symbols


def keep(filters, *lines):
    problems = Counter()
    return filters.keep(list(lines), problems), dict(problems)


def test_the_default_keeps_everything():
    lines = ["", "x", "|||", "no stop"]
    assert keep(Filters(), *lines) == (lines, {})


def test_short_lines():
    assert keep(Filters(line_characters=3), "ab", "abc", "四五六", "四五") == (
        ["abc", "四五六"],
        {"lines under 3 characters": 2},
    )


@pytest.mark.parametrize(
    "line, share",
    [
        ("plain words 12", 0.0),
        ("a|b|", 0.5),
        ("__a", 2 / 3),
        ("हिन्दी में लिखा है", 0.0),  # vowel signs are marks, not letters
        ("สวัสดีครับ", 0.0),
        ("e\u0301te\u0301", 0.0),
        ("中文。", 1 / 3),
        ("😀😀ab", 0.5),
    ],
)
def test_symbols(line, share):
    assert not has_symbols(line, share)
    if share:
        assert has_symbols(line, share - 0.01)
    problems = {"lines of symbols": 1} if share > 0.4 else {}
    assert keep(Filters(line_symbols=0.4), line) == ([] if problems else [line], problems)


@pytest.mark.parametrize(
    "line",
    "End. End! End? End… “End.” (End.) 好。 「好！」 है। نعم؟ ہے۔ է։ ነው። ပါ။ ។ である． oui.\u00a0»".split(
        " "
    ),
)
def test_stops_of_any_script(line):
    assert ends_with_stop(line)
    assert not ends_with_stop(f"{line} und") and not ends_with_stop(f"{line},")


def test_lines_without_a_stop():
    found = keep(Filters(line_stops=True), "History", "One here.", "好", "“Yes!”", "that:")
    assert found == (["One here.", "“Yes!”"], {"lines without a stop": 3})


def test_documents_are_measured_after_their_lines():
    filters = Filters(document_characters=5, line_characters=2)
    assert keep(filters, "abc", "de", "f") == (["abc", "de"], {"lines under 2 characters": 1})
    problems = {"lines under 2 characters": 1, "documents under 5 characters": 1}
    assert keep(filters, "abcd", "e") == (None, problems)
    problems = Counter()
    block = [b"abcdef\n\nabcd\n\nx\n\nghijkl"]
    found = documents(block, Reading("lines", "lines", filters=filters), problems)
    assert found == [["abcdef"], ["ghijkl"]]
    assert problems["documents under 5 characters"] == 2

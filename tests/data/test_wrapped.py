"""Hard-wrapped text: it is recognized, in any script, and its lines are joined again."""

import random
import textwrap
from collections import Counter

import pytest
from kits.corpora import config_of, make_text, prepare, report_of

from bert_jax.data.sources import text
from bert_jax.data.sources.wrapped import join_lines

WORDS = (
    "the small river runs between old stone houses and many people walk along it every day".split()
)
HAN = "我昨天和朋友一起去看了电影这部非常有意思"


def sentences(number: int, seed: int = 0) -> list[str]:
    draw = random.Random(seed)
    return [
        " ".join(draw.choices(WORDS, k=draw.randrange(5, 25))).capitalize() + "."
        for _ in range(number)
    ]


def parse(lines: str, sentences: str = "wrapped") -> list[str]:
    (document,) = text.parse(lines.encode(), text.Reading("files", sentences), Counter())
    return document


@pytest.mark.parametrize("width", [40, 72, 100])
@pytest.mark.parametrize("form", ["", "- ", "12. ", "    ", "  * ", "> ", "> > "])
def test_paragraphs_are_found_again(width, form):
    """Also items of a list with a hanging indentation, indented text, and quotations."""
    paragraphs = [" ".join(sentences(number, number)) for number in range(1, 9)]
    indent = form if ">" in form else " " * len(form)
    wrapped = [
        textwrap.fill(paragraph, width, initial_indent=form, subsequent_indent=indent)
        for paragraph in paragraphs
    ]
    separator = "\n" if form.strip() else "\r\n \r\n"
    if ">" in form:
        separator = f"\n{form.rstrip()}\n"
    expected = [form.lstrip() + paragraph for paragraph in paragraphs]
    found = parse(separator.join(wrapped))
    assert [each for each in found if each.strip("> ")] == expected


def test_paragraphs_of_ideographs_have_no_spaces_between_lines():
    paragraphs = ["\u3000\u3000" + HAN * number + "。" for number in (3, 9)]
    lines = "\n".join(part for each in paragraphs for part in textwrap.wrap(each, 25))
    assert parse(lines) == [each.strip() for each in paragraphs]


@pytest.mark.parametrize(
    "lines",
    [
        ["A Heading", "A line of text that begins with a capital."],
        ["# A heading that is as long as a line", "a line of text."],
        ["some words of a line that ends here", "## A heading of the second level", "a line"],
        ["A heading that is about as long as a line of text", "=======", "A line of text."],
        ["some words that end with a colon and then a list:", "- one", "- two", "3. three"],
        ["a line of ordinary length before a table comes", "| a | b |", "| 1 | 2 |"],
        ["A line of ordinary length before what is indented:", "    an example"],
        ["some words of a line that is not quoted", "> one that is", "> > and one that is again"],
    ],
)
def test_what_is_no_wrapped_line_stays_as_it_is(lines):
    assert parse("\n".join(lines)) == [line.strip() for line in lines]


@pytest.mark.parametrize(
    "unit",
    [" ", "> ", ">\n", "> a\n", "- ", "-", "=\n", "a\n", "\t-", "  - ", "1. ", "\u3000", "。\n"],
)
def test_joining_takes_linear_time_and_loses_nothing(unit):
    content = unit * 100_000 + "a"
    joined = "".join(join_lines(content.split("\n")))
    assert "".join(joined.split()) == "".join(content.split())


def warned(directory, documents, *overrides) -> tuple[float, bool]:
    """Returns the share of wrapped sentences of a store, and whether its report warns of it."""
    store = prepare(config_of(directory, documents, *overrides))
    made = report_of(store)
    remedies = [each["remedy"] for each in made["warnings"] if each["name"] == "wrapped_lines"]
    assert all("corpus.sentences=wrapped" in remedy for remedy in remedies)
    return made["wrapped_share"], bool(remedies)


@pytest.mark.parametrize("mode", ["lines", "rules"])
@pytest.mark.parametrize(("width", "form"), [(38, ""), (72, ""), (66, "> ")])
def test_wrapped_text_is_warned_of_and_the_remedy_helps(tmp_path, mode, width, form):
    documents = [
        textwrap.indent(textwrap.fill(" ".join(sentences(9, seed)), width), form)
        for seed in range(30)
    ]
    share, is_warned = warned(tmp_path / "a", documents, f"corpus.sentences={mode}")
    assert is_warned and share > 0.2
    share, is_warned = warned(tmp_path / "b", documents, "corpus.sentences=wrapped")
    assert not is_warned and share < 0.02
    exact = "corpus.sentences=none", "task.name=packed_documents", "objective.name=mlm"
    assert warned(tmp_path / "c", documents, *exact) == (0, False)


@pytest.mark.parametrize("mode", ["lines", "rules"])
def test_text_that_is_not_wrapped_is_not_warned_of(tmp_path, mode):
    """A sentence or a paragraph a line, words without stops, code, a table."""
    code = "def f(x):\n  if x:\n    return g(x)\n  y = x.a\n  return y"
    documents = [
        *("\n".join(sentences(6, seed)) for seed in range(20)),
        *(
            "\n".join(" ".join(sentences(4, seed + part)) for part in range(3))
            for seed in range(20)
        ),
        *make_text(60),
        *(f"{code}\nz{seed}" for seed in range(20)),
        *("\n".join(f"a{n}\t{seed}\tb" for n in range(6)) for seed in range(20)),
    ]
    share, is_warned = warned(tmp_path, documents, f"corpus.sentences={mode}")
    assert not is_warned and share < 0.05


def test_the_end_of_a_document_divides_no_sentence(tmp_path):
    tweets = [f"{' '.join(sentences(2, seed))} and {WORDS[seed % 9]}".lower() for seed in range(90)]
    assert warned(tmp_path, ["\n".join(tweets)], "corpus.format=document_per_line") == (0, False)

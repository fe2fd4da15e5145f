"""Hard-wrapped text, whose lines end at a width and not with a sentence: recognizes it, and joins its lines."""

import re
from collections.abc import Iterator
from itertools import groupby

from bert_jax.data.sources.sentences import CLOSING, SPACED, STOPS, UNSPACED

# A sample of the sentences of a block: so many, from so many places.
SENTENCES = 25
PLACES = 20
STOP = re.compile(rf"[{re.escape(SPACED)}](?!\S)|[{UNSPACED}]")
UNFINISHED = re.compile(rf"[^\n{re.escape(STOPS + CLOSING)}]\n([^\W\d_])")
# The first characters of a line of a list, a table, a quotation or a heading.
HEADING = r"#++[ \t]++"
MARK = rf"(?:{HEADING}|(?:[-*+•|>]|\d{{1,2}}[.)])[ \t]++)"
INDENT = r"[ \t\u3000]*+"
# Lines with words, of the indentation of the first one or none, or of an item of a list; each but the last is too long
# for a heading or an address. Otherwise, any line.
PARAGRAPH = re.compile(
    rf"^{INDENT}{HEADING}.*|^({INDENT})({MARK})?(?=.*\w)\S.*"
    rf"(?:(?<=.{{20}})\n(?(2){INDENT}|(?:\1)?)(?!{MARK})(?=\S.*\w|\w).*)*|.+",
    re.MULTILINE,
)
# In mail, marks of quotations in front of a line: one for each writer.
QUOTE = re.compile(r"^(?:>(?: |$))*", re.MULTILINE)
WIDE = r"\u3001-\u30ff\u3400-\u9fff\uff00-\uffef"  # ideographs, kana and their punctuation
WIDE_BREAK = re.compile(rf"(?<=[{WIDE}])\n(?=[{WIDE}])")


def count_wrapped(documents: list[list[str]]) -> dict[str, int]:
    """Returns counts of a sample: sentences, and those without a stop in front of one without a capital, but at most as
    many as there are stops: code, tables, and text without stops are not wrapped."""
    # An empty line between documents: no sentence goes on in the next one.
    lines = "\n\n".join(map("\n".join, documents)).split("\n")
    sampled = 0
    wrapped = 0
    for first in range(0, len(lines), len(lines) // PLACES + 1):
        sample = lines[first : first + SENTENCES]
        text = QUOTE.sub("", "\n".join(sample))
        unfinished = sum(not letter.isupper() for letter in UNFINISHED.findall(text))
        sampled += len(sample) - sample.count("")
        wrapped += min(unfinished, len(STOP.findall(text)))
    return {"sampled": sampled, "wrapped": wrapped}


def join_lines(lines: list[str]) -> Iterator[str]:
    """Yields paragraphs, of which the lines are joined by spaces; those of ideographs by nothing. A paragraph of a
    quotation keeps the first of its marks."""
    for quote, group in groupby(lines, lambda line: QUOTE.match(line)[0]):
        text = "\n".join(line.removeprefix(quote) for line in group)
        for match in PARAGRAPH.finditer(text):
            paragraph = "\n".join(map(str.strip, match[0].split("\n")))
            yield quote + WIDE_BREAK.sub("", paragraph).replace("\n", " ")

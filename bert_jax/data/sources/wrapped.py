"""Hard-wrapped text, whose lines end at a width and not with a sentence: recognizes it, and joins its lines."""

import re
from collections.abc import Iterator

from bert_jax.data.sources.sentences import CLOSING, SPACED, STOPS, UNSPACED

# A sample of the sentences of a block: so many, from so many places.
SENTENCES = 25
PLACES = 20
STOP = re.compile(rf"[{re.escape(SPACED)}](?!\S)|[{UNSPACED}]")
QUOTE = r"(?:> )*+"  # in front of each line of a quotation in mail
UNFINISHED = re.compile(rf"[^\n{re.escape(STOPS + CLOSING)}]\n{QUOTE}([^\W\d_])")
# The first characters of a line of a list, a table, a quotation or a heading.
HEADING = r"#++[ \t]++"
MARK = rf"(?:{HEADING}|(?:[-*+•|>]|\d{{1,2}}[.)])[ \t]++)"
INDENT = r"[ \t\u3000]*+"
# Lines with words, with the quotation marks of the first one, and its indentation or none, or of an item of a list;
# each but the last is too long for a heading or an address. Otherwise, any line.
PARAGRAPH = re.compile(
    rf"^{QUOTE}{INDENT}{HEADING}.*|^({QUOTE})({INDENT})({MARK})?(?=.*\w)\S.*"
    rf"(?:(?<=.{{20}})\n\1(?(3){INDENT}|(?:\2)?)(?!{MARK})(?=\S.*\w|\w).*)*|.+",
    re.MULTILINE,
)
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
        text = "\n".join(sample)
        unfinished = sum(not letter.isupper() for letter in UNFINISHED.findall(text))
        sampled += len(sample) - sample.count("")
        wrapped += min(unfinished, len(STOP.findall(text)))
    return {"sampled": sampled, "wrapped": wrapped}


def join_lines(lines: list[str]) -> Iterator[str]:
    """Yields paragraphs, of which the lines are joined by spaces; those of ideographs by nothing. A paragraph of a
    quotation keeps the first of its marks."""
    for match in PARAGRAPH.finditer("\n".join(lines)):
        text = match[0].replace(f"\n{match[1] or ''}", "\n")
        paragraph = "\n".join(map(str.strip, text.split("\n")))
        yield WIDE_BREAK.sub("", paragraph).replace("\n", " ")

"""Documents and sentences of text files and of Python's docstrings; what is not text is dropped and counted."""

import gzip
import lzma
import random
import sys
from collections import Counter

import pytest

from bert_jax.data import corpus
from bert_jax.errors import BadInput


def read(paths, form="lines", sentences="lines"):
    """([document of sentences], problems) of some files."""
    problems = Counter()
    blocks = corpus.blocks(paths, form, problems)
    found = [
        document
        for block in blocks
        for document in corpus.documents(block, corpus.Reading(form, sentences), problems)
    ]
    return found, dict(problems)


def write(path, content: bytes):
    path.write_bytes(content)
    return path


def test_lines(tmp_path):
    a = write(tmp_path / "a.txt", b"\n\none\ntwo \r\n \t\r\n\nthree\n")
    b = write(tmp_path / "b.txt", b"\xef\xbb\xbffour\nfive")
    assert read([a, b]) == ([["one", "two"], ["three"], ["four", "five"]], {})


def test_files(tmp_path):
    a = write(tmp_path / "a.txt", b"One. Two.\n\nThree.\n")
    b = write(tmp_path / "b.txt", b"\n \n")
    assert read([a, b], "files", "rules") == ([["One.", "Two.", "Three."], []], {})


WIKI = """<doc id="1" url="u" title="A &amp; B">
A & B

First here. Second here.
History.
Third one.
</doc>
<doc id="2" url="u" title="Empty">
Empty
</doc>
<doc id="3" url="u" title="C">
Not the title. More.

C
</doc>
"""


def test_wiki(tmp_path):
    path = write(tmp_path / "wiki.txt", WIKI.encode())
    first = ["First here.", "Second here.", "History.", "Third one."]
    assert read([path], "wiki", "rules")[0] == [first, [], ["Not the title.", "More.", "C"]]


@pytest.mark.parametrize("form", ["lines", "files", "wiki"])
def test_blocks_do_not_change_documents(tmp_path, monkeypatch, form):
    draw = random.Random(1)
    paths = []
    for number in range(5):
        texts = [
            "\n".join("word " * draw.randrange(1, 9) for _ in range(draw.randrange(9)))
            for _ in range(30)
        ]
        if form == "wiki":
            texts = [
                f'<doc id="{i}" title="T">\nT\n\n{text}\n</doc>' for i, text in enumerate(texts)
            ]
        separator = "\n" if form == "wiki" else "\n\n"
        paths.append(write(tmp_path / f"{number}.txt", separator.join(texts).encode()))
    whole = read(paths, form)
    for size in (1, 7, 100, 1000):
        monkeypatch.setattr(corpus, "BLOCK", size)
        assert read(paths, form) == whole
    assert len(whole[0]) == 5 if form == "files" else len(whole[0]) > 100


@pytest.mark.parametrize("opener, suffix", [(gzip.open, ".gz"), (lzma.open, ".xz")])
def test_compressed(tmp_path, opener, suffix):
    path = tmp_path / f"a.txt{suffix}"
    content = "\n\n".join(str(number) for number in range(50_000)).encode()
    with opener(path, "wb") as file:
        file.write(content)
    assert read([path]) == read([write(tmp_path / "plain.txt", content)])
    write(path, path.read_bytes()[:-20])
    with pytest.raises(BadInput, match=f"{path}: damaged or cut short"):
        read([path])
    write(path, b"this is no archive")
    with pytest.raises(BadInput, match=f"{path}: damaged or cut short"):
        read([path])


def test_bad_lines_are_dropped_and_counted(tmp_path):
    bad = [b"a\xffb", b"nul\0nul", b"x" * 10_000_000, b"x" * 1_500_000, b"\xc3"]
    path = write(tmp_path / "a.txt", b"\n".join([b"first", *bad, b"last"]))
    problems = {"lines not UTF-8": 2, "lines with NUL bytes": 1, "lines over 1 MB": 2}
    assert read([path]) == ([["first", "last"]], problems)


@pytest.mark.parametrize("before", [0, 1, 999_990, 1_048_575, 1_048_576])
@pytest.mark.parametrize("after", [b"", b"\n", b"\nb", b"\nb\n\nc"])
def test_a_long_line_anywhere(tmp_path, before, after):
    start = b"a\n" * (before // 2)
    path = write(tmp_path / "a.txt", start + b"x" * 3_200_000 + after)
    found, problems = read([path])
    assert problems == {"lines over 1 MB": 1}
    assert [sentence for document in found for sentence in document] == (
        start + after.lstrip()
    ).decode().split()
    assert len(found) == bool(start or after.strip()) + after.count(b"\n\n")


def test_memory_does_not_grow_with_a_line(tmp_path):
    path = write(tmp_path / "a.txt", b"x" * 20_000_000 + b"\nend")
    assert max(map(len, corpus.read_lines(path, Counter()))) < 3_000_000


def test_a_huge_document_is_parted(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "LONGEST_DOCUMENT", 3_000_000)
    path = write(tmp_path / "a.txt", b"some words of a line\n" * 400_000)
    found, problems = read([path])
    assert problems == {"documents parted": 2} and len(found) == 3
    assert sum(map(len, found)) == 400_000


def test_globs(tmp_path):
    a, b = write(tmp_path / "a.txt", b"a"), write(tmp_path / "b.txt", b"b")
    (tmp_path / "folder.txt").mkdir()
    assert corpus.find_files(f"{tmp_path}/*.txt") == [a, b]
    assert corpus.find_files(f"{b}, {tmp_path}/[ab].txt,{a}") == [a, b]
    for source, message in [
        (f"{a},{tmp_path}/*.gz", "matches no file"),
        (f"{tmp_path}/none.txt", "no such file"),
        (str(tmp_path), "no such file"),
        (" , ", "names no file"),
    ]:
        with pytest.raises(BadInput, match=message):
            corpus.find_files(source)


@pytest.mark.parametrize(
    "line, expected",
    [
        ("One here. Two here! Three? Four", 4),
        ("Dr. Smith paid 3.50 to J. R. Tolkien of the U.S. Army.", 1),
        ('She said "no." He left. (He did.) So?', 4),
        ("It costs No. 5 e.g. this and so on... or not. was it", 1),
        ("Über alles. Élan vital. 1984 was", 3),
        ("他来了。她说：“好！”然后走了。为什么？", 4),
        ("?! ... !", 1),
        ("", 0),
    ],
)
def test_sentences(line, expected):
    found = corpus.split_sentences(line)
    assert len(found) == expected
    assert "".join(found).replace(" ", "") == line.replace(" ", "")


def test_sentences_lose_nothing_and_are_short():
    draw = random.Random(1)
    for size in [50] * 300 + [20_000] * 5 + [300_000]:
        line = "".join(draw.choices("aB 1.!?。”\"')( é", k=size)).strip()
        found = corpus.split_sentences(line)
        assert "".join("".join(found).split()) == "".join(line.split())
        assert all(found) and max(map(len, found), default=0) <= corpus.LONGEST_SENTENCE
    assert list(map(len, corpus.cap("x" * 4500 + " " + "y" * 10))) == [2000, 2000, 511]


MODULE = b'''"""The module tells a long story about what it is for.
    It goes on for a while.

    >>> code()
    42

Parameters
----------
x : array_like
"""

class Thing:
    """A thing is what it is, and never anything else."""

    def method(self):
        """Returns the thing that was asked for."""

def silent():
    return 1
'''


def test_docstrings_become_paragraphs():
    module, thing, method = corpus.docstrings(MODULE)
    assert corpus.paragraphs(module) == [
        "The module tells a long story about what it is for. It goes on for a while.",
        "Parameters ---------- x : array_like",
    ]
    assert thing == "A thing is what it is, and never anything else."
    assert method == "Returns the thing that was asked for."


def test_short_docstrings_are_left_out(tmp_path):
    path = write(tmp_path / "a.py", b'def f():\n    """' + b"Words. " * 60 + b'"""\n')
    short = write(tmp_path / "b.py", b'"""A few words."""\n')
    text = corpus.pydocs_text([short, path])
    assert text == b"Words. " * 59 + b"Words.\n\n"


def test_pydocs_reads_the_standard_library_without_importing(tmp_path):
    groups = corpus.pydocs_files()
    assert sum(map(len, groups)) > 500 and groups == corpus.pydocs_files()
    topics = [path for group in groups for path in group if path.name == "topics.py"]
    before = set(sys.modules)
    text = corpus.pydocs_text(topics[:1] + groups[0][:5])
    assert set(sys.modules) == before
    found, problems = read([write(tmp_path / "p.txt", text)], "lines", "rules")
    assert len(found) > 20 and not problems
    letters = sum(c.isalpha() or c.isspace() for c in text.decode())
    assert letters > 0.8 * len(text.decode())


def test_what_python_cannot_read_is_passed_over(tmp_path):
    bad = [
        write(tmp_path / "a.py", b'"""doc'),
        write(tmp_path / "b.py", b'"""\xff"""'),
        write(tmp_path / "c.py", b'"""\0"""'),
        write(tmp_path / "d.py", b"x = '''" + b"\\d" + b"'''\n"),
        tmp_path / "missing.py",
    ]
    assert corpus.pydocs_text(bad) == b""

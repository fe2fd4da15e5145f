"""The prose of Python's own docstrings."""

import sys
from collections import Counter

from kits.corpora import write

from bert_jax.data.corpus import Reading, documents
from bert_jax.data.sources import pydocs

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
    module, thing, method = pydocs.docstrings(MODULE)
    assert pydocs.paragraphs(module) == [
        "The module tells a long story about what it is for. It goes on for a while.",
        "Parameters ---------- x : array_like",
    ]
    assert thing == "A thing is what it is, and never anything else."
    assert method == "Returns the thing that was asked for."


def test_short_docstrings_are_left_out(tmp_path):
    path = write(tmp_path / "a.py", b'def f():\n    """' + b"Words. " * 60 + b'"""\n')
    short = write(tmp_path / "b.py", b'"""A few words."""\n')
    text = pydocs.pydocs_text([short, path])
    assert text == b"Words. " * 59 + b"Words.\n\n"


def test_pydocs_reads_the_standard_library_without_importing(tmp_path):
    groups = pydocs.pydocs_files()
    assert sum(map(len, groups)) > 500 and groups == pydocs.pydocs_files()
    topics = [path for group in groups for path in group if path.name == "topics.py"]
    before = set(sys.modules)
    text = pydocs.pydocs_text(topics[:1] + groups[0][:5])
    assert set(sys.modules) == before
    problems = Counter()
    found = documents([text], Reading("lines", "rules"), problems)
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
    assert pydocs.pydocs_text(bad) == b""

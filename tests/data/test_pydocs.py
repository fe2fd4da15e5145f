"""The source `pydocs`: documents from Python's docstrings."""

import sys

import pytest
from kits.corpora import read_sources, write

from bert_jax import config as configs
from bert_jax.data.preparation import corpus
from bert_jax.data.sources import pydocs

LONG = "Words. " * 60
MODULE = f'''"""The module  tells
    a story. {LONG}

    >>> code()
"""

class Thing:
    """A few words."""

    def method(self):
        """Returns. {LONG}"""
'''


def test_long_docstrings_become_documents_of_paragraphs(tmp_path):
    """Files that are not valid Python are skipped."""
    bad = [b'"""doc', b'"""\xff"""', b'"""\0"""', b"x = '''\\d'''\n"]
    paths = [write(tmp_path / f"{number}.py", text) for number, text in enumerate(bad)]
    paths += [tmp_path / "missing.py", write(tmp_path / "a.py", MODULE.encode())]
    long = LONG.strip()
    expected = f"The module tells a story. {long}\n\nReturns. {long}\n\n"
    assert pydocs.pydocs_text(paths).decode() == expected


@pytest.mark.slow
def test_the_standard_library_is_read_without_importing_it(tmp_path):
    (source,) = corpus.open_sources(configs.load("demo", ["corpus.source=pydocs"]))
    groups, modules = pydocs.pydocs_files(), set(sys.modules)
    assert sum(map(len, groups)) > 500 and groups == pydocs.pydocs_files()
    ready = corpus.materialize(source, tmp_path, lambda function, of: map(function, of[:1]))
    assert set(sys.modules) == modules
    assert ready.identify(map)["files"] == 1
    found, problems = read_sources([ready])
    assert len(found) > 20 and not problems

"""`corpus.map`: a function of one's own that each document goes through."""

import sys
from pathlib import Path

import pytest
from kits import corpora
from kits.corpora import config_of, make_text, prepare, read, report_of

from bert_jax import cli
from bert_jax.data.preparation import corpus
from bert_jax.data.preparation import prepare as preparing
from bert_jax.errors import BadInput

CODE = """
import functools

TABLE = {{"cat": "{animal}"}}

def unchanged(function):
    @functools.wraps(function)
    def call(text):
        return function(text)
    return call

@unchanged
def rename(text):
    for old, new in TABLE.items():
        text = text.replace(old, new)
    return text

def drop_birds(text):
    assert text.strip()
    return "" if "bird" in text else text

def first_paragraph(text):
    return text.partition("\\n\\n")[0]

def broken(text):
    return "\\ud800 and more"

def nothing(text):
    pass

def fails(text):
    raise KeyError(text[:0])

number = 3
first = lambda text: text
second = lambda text: text + " It was."
"""


@pytest.fixture
def code(tmp_path, monkeypatch):
    """Writes the module of the functions, with what the table replaces cats by."""
    name = f"own_{tmp_path.name}".replace("-", "_")
    path = tmp_path / "code" / f"{name}.py"
    path.parent.mkdir()
    monkeypatch.syspath_prepend(str(path.parent))

    def write(animal: str = "horse") -> str:
        path.write_text(CODE.format(animal=animal))
        sys.modules.pop(name, None)
        return name

    yield write
    sys.modules.pop(name, None)


def documents(config) -> list[list[str]]:
    return corpora.read_sources(corpus.open_sources(config))[0]


def test_documents_go_through_it_as_they_are_in_the_source(tmp_path, code):
    """Before lines are joined and sentences split, with blank lines; not those without text."""
    text = "The cat that was old and red\nsat. It\n\nwas a cat."
    keys = f"corpus.map={code()}.rename", "corpus.format=files", "corpus.sentences=wrapped"
    config = config_of(tmp_path, [text], *keys)
    assert documents(config) == [["The horse that was old and red sat.", "It", "was a horse."]]
    config = config_of(tmp_path, [text], f"corpus.map={code()}.first_paragraph", *keys[1:])
    assert documents(config) == [["The cat that was old and red sat.", "It"]]
    config = config_of(tmp_path, [" \n "], f"corpus.map={code()}.fails", *keys[1:])
    assert documents(config) == [[]]
    config = config_of(tmp_path, [text], f"corpus.map={code()}.broken")
    assert documents(config) == [["\ufffd and more"]] * 2


@pytest.mark.slow
def test_a_store_has_the_mapped_text(tmp_path, code):
    """So copies are those of mapped text; documents that are dropped are counted as empty. It is that of the same text
    without a map, also by several workers."""
    texts = make_text(60)
    kept = [text for text in texts if "bird" not in text]
    plain = prepare(config_of(tmp_path / "plain", kept))
    key = f"corpus.map={code()}.drop_birds"
    mapped = prepare(config_of(tmp_path / "mapped", texts, key, "corpus.workers=2"))
    for name, split in plain.splits.items():
        assert read(split) == read(mapped.splits[name])
    assert report_of(mapped)["empty"] == len(texts) - len(kept) > 0
    copies = [text.replace("cat", "horse") for text in texts if "cat" in text]
    renamed = config_of(tmp_path / "copies", [*texts, *copies], f"corpus.map={code()}.rename")
    assert report_of(prepare(renamed))["copies"] >= len(copies) > 0


def test_an_edited_map_is_another_store(tmp_path, code):
    """By the content of its file, so its place does not matter; a store without a map is as before the key existed."""
    texts = make_text(40)
    prepare(config_of(tmp_path, texts, f"corpus.map={code()}.rename"))
    assert "corpus.map" not in prepare(config_of(tmp_path / "b", texts)).manifest["made_from"]
    again = config_of(tmp_path, texts, f"corpus.map={code()}.rename")
    prepare(again)
    code("dog")
    with pytest.raises(BadInput, match="config.corpus.map: built with .*'rename'"):
        prepare(again)
    code()
    prepare(again)
    for name in (f"{code()}.drop_birds", ""):
        with pytest.raises(BadInput, match="config.corpus.map: built with"):
            prepare(config_of(tmp_path, texts, f"corpus.map={name}"))


def test_another_function_of_one_name_is_another_store(tmp_path, code):
    """Each lambda has the same name of its own."""
    texts = make_text(40)
    prepare(config_of(tmp_path, texts, f"corpus.map={code()}.first"))
    with pytest.raises(BadInput, match="config.corpus.map: built with .*'first'.*'second'"):
        preparing.prepare(config_of(tmp_path, texts, f"corpus.map={code()}.second"))


def refused(directory, name: str, capsys, *overrides) -> str:
    """Returns the line that refuses a map; nothing is written beside the text."""
    config = config_of(directory, make_text(40))
    keys = f"corpus.source={config.corpus.source}", f"store={config.store}", f"corpus.map={name}"
    arguments = [f"--config.{key}" for key in (*keys, "corpus.format=lines", *overrides)]
    assert cli.main(["prepare", "--config", "demo", *arguments]) == 2
    assert {path.name for path in Path(directory).iterdir()} <= {"corpus.txt", "code"}
    *_, line = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nothing", "got 'NoneType'"),
        ("fails", "KeyError"),
        ("missing", "has no attribute 'missing'"),
        ("number", "not a function"),
        (".missing.function", "No module named"),
    ],
)
@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_map_that_does_not_work_is_refused(tmp_path, code, capsys, name, reason, workers):
    path = code() + "." * (not name.startswith(".")) + name
    line = refused(tmp_path, path, capsys, f"corpus.workers={workers}")
    assert f"config.corpus.map='{path}': " in line and reason in line


def test_a_function_without_a_file_is_refused(tmp_path, capsys):
    """Its changes would not be noticed."""
    assert "config.corpus.map='sys.intern': " in refused(tmp_path, "sys.intern", capsys)


def test_the_report_of_a_store_needs_its_map(tmp_path, code):
    config = config_of(tmp_path, make_text(40), f"corpus.map={code()}.rename")
    prepare(config)
    (tmp_path / "code" / f"{config.corpus.map.partition('.')[0]}.py").unlink()
    sys.modules.pop(config.corpus.map.partition(".")[0])
    with pytest.raises(BadInput, match="config.corpus.map"):
        preparing.prepare(config)

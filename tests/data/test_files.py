"""Finding files, and their text in pieces: every line once, in bounded memory, damage named."""

import bz2
import gzip
import lzma
import os
from collections import Counter

import pytest
from kits.corpora import write

from bert_jax.data.sources import files
from bert_jax.errors import BadInput


def test_a_file_a_glob_and_a_directory(tmp_path):
    a, b = write(tmp_path / "a.txt", b"a"), write(tmp_path / "b.txt", b"b")
    c, d = write(tmp_path / "b" / "a.gz", b""), write(tmp_path / "b" / "c" / "d", b"d")
    write(tmp_path / ".hidden", b"h")
    write(tmp_path / "b" / ".git" / "x.txt", b"h")
    (tmp_path / "folder.txt").mkdir()
    assert files.find_files(str(a)) == [a]
    assert files.find_files(f"{tmp_path}/*.txt") == [a, b]
    assert files.find_files(f"{tmp_path}/**/[ab].*") == [a, c, b]
    assert files.find_files(str(tmp_path)) == [a, c, d, b]


def test_links_to_directories_are_followed_once(tmp_path):
    a = write(tmp_path / "corpus/a/x.txt", b"x")
    y = write(tmp_path / "elsewhere/y.txt", b"y")
    (tmp_path / "corpus/b").symlink_to(y.parent)
    (tmp_path / "corpus/again").symlink_to(tmp_path / "corpus")
    (tmp_path / "corpus/c").symlink_to(y.parent)
    found = files.find_files(str(tmp_path / "corpus"))
    assert found == [a, tmp_path / "corpus/b/y.txt"]


def test_what_cannot_be_opened_is_refused(tmp_path, monkeypatch):
    path = write(tmp_path / "a.txt", b"a")

    def refuse(*arguments):
        raise PermissionError(13, "Permission denied", str(tmp_path / "b"))

    with monkeypatch.context() as patch:
        patch.setattr(files, "open", refuse, raising=False)
        with pytest.raises(BadInput, match="a.txt: cannot be read .Permission denied"):
            files.find_files(str(path))
    write(tmp_path / "b" / "c", b"c")
    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(BadInput, match="/b: cannot be read .Permission denied"):
        files.find_files(str(tmp_path))


def test_the_home_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    path = write(tmp_path / "a.txt", b"a")
    assert files.find_files("~/a.txt") == files.find_files("~/*.txt") == [path]


@pytest.mark.parametrize(
    "source, message",
    [
        ("*.gz", "matches no file"),
        ("none.txt", "no such file .for a comma in a path write ?"),
        ("empty", "is a directory without files"),
        ("a.zip", "a.zip: .zip is not read; plain, .gz, .bz2 and .xz are"),
        ("b.tar.xz", "b.tar.xz: .tar.xz is not read"),
        ("c.Zip", "c.Zip: .zip is not read"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, source, message):
    write(tmp_path / "empty" / ".keep", b"")
    for name in ("a.zip", "b.tar.xz", "c.Zip"):
        write(tmp_path / name, b"PK")
    with pytest.raises(BadInput, match=message) as error:
        files.find_files(f"{tmp_path}/{source}")
    assert str(tmp_path / source) in str(error.value)


def test_text_at_an_address_is_refused():
    with pytest.raises(BadInput, match="gs://bucket/text.txt: text is read from disks alone"):
        files.find_files("gs://bucket/text.txt")


def test_files_read_tells_changes(tmp_path):
    a, b = write(tmp_path / "a.txt", b"one"), write(tmp_path / "b.txt", b"two")
    known = files.files_read([a, b])
    assert (known["files"], known["bytes"]) == (2, 6)
    write(b, b"three")
    assert files.files_read([a, b])["sha256"] != known["sha256"]


@pytest.mark.parametrize(
    "opener, suffix", [(gzip.open, ".gz"), (lzma.open, ".xz"), (bz2.open, ".BZ2")]
)
def test_compressed(tmp_path, opener, suffix):
    path = tmp_path / f"a.txt{suffix}"
    content = b"\n\n".join(b"%d" % number for number in range(50_000))
    with opener(path, "wb") as file:
        file.write(content)
    assert read(path) == content
    write(path, path.read_bytes()[:-20])
    with pytest.raises(BadInput, match=f"{path}: damaged or cut short"):
        read(path)
    write(path, b"this is no archive")
    with pytest.raises(BadInput, match=f"{path}: damaged or cut short"):
        read(path)


def read(path, form="lines", **keys) -> bytes:
    return b"".join(files.texts(path, form, Counter(), **keys))


@pytest.mark.parametrize("content", [b"", b"\n", b"a", b"a\r\n\r\nb", b"a\n\n\n\nb\n\nc\n"])
@pytest.mark.parametrize("size", [1, 2, 3, 1000])
@pytest.mark.parametrize("form", ["lines", "files", "wiki", "jsonl"])
def test_nothing_is_lost_between_pieces(tmp_path, content, size, form):
    assert read(write(tmp_path / "a.txt", content), form, size=size) == content


@pytest.mark.parametrize("before", [0, 1, 999_990, 1_048_575, 1_048_576])
@pytest.mark.parametrize("after", [b"", b"\n", b"\nb", b"\nb\n\nc"])
def test_a_long_line_anywhere(tmp_path, before, after):
    start = b"a\n" * (before // 2)
    path = write(tmp_path / "a.txt", start + b"x" * 3_200_000 + after)
    problems = Counter()
    found = b"".join(files.texts(path, "lines", problems))
    assert problems == {"lines over 1 MB": 1}
    assert found.split() == (start + after).split()


def test_memory_does_not_grow_with_a_line(tmp_path):
    path = write(tmp_path / "a.txt", b"x" * 20_000_000 + b"\nend")
    assert max(map(len, files.read_lines(path, Counter()))) < 3_000_000
    problems = Counter()
    path = write(tmp_path / "a.jsonl", b'"' + b"x" * 40_000_000 + b'"\nend')
    assert max(map(len, files.texts(path, "jsonl", problems))) < 18_000_000
    assert problems == {"lines over 16 MB": 1}


def test_a_huge_document_is_parted(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "LONGEST_DOCUMENT", 3_000_000)
    content = b"some words of a line\n" * 400_000
    problems = Counter()
    found = list(files.texts(write(tmp_path / "a.txt", content), "lines", problems))
    assert problems == {"documents parted": 2} and len(found) == 3
    assert b"".join(found) == content

"""Text files: finding them, and reading every line once, in bounded memory; damaged ones are named."""

import bz2
import gzip
import lzma
from collections import Counter

import pyarrow
import pytest
from kits.corpora import write

from bert_jax.data.sources import files
from bert_jax.data.sources.problems import numbers_of
from bert_jax.data.sources.text import Reading
from bert_jax.errors import BadInput


def test_files_are_found_by_name_glob_and_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    a, b = write(tmp_path / "a.txt", b"a"), write(tmp_path / "b.txt", b"b")
    c, d = write(tmp_path / "b" / "a.gz", b""), write(tmp_path / "b" / "c" / "d", b"d")
    write(tmp_path / ".hidden", b"h")
    write(tmp_path / "b" / ".git" / "x.txt", b"h")
    assert files.find_files(str(a)) == files.find_files("~/a.txt") == [a]
    assert files.find_files(f"{tmp_path}/*.txt") == files.find_files("~/*.txt") == [a, b]
    assert files.find_files(f"{tmp_path}/**/[ab].*") == [a, c, b]
    (tmp_path / "b/link").symlink_to(write(tmp_path / ".elsewhere/y.txt", b"y").parent)
    assert files.find_files(str(tmp_path)) == [a, c, d, tmp_path / "b/link/y.txt", b]


@pytest.mark.parametrize("source", ["", "/**", "/**/*.txt", "/b/../**"])
def test_directories_are_read_once_whatever_links_lead_there(tmp_path, source):
    """Many links to directories around them would be followed in all orders."""
    top = tmp_path / "text"
    a, b = write(top / "a.txt", b"a"), write(top / "b" / "c" / "b.txt", b"b")
    for number in range(20):
        (top / f"self{number}").symlink_to(".")
        (top / "b" / "c" / f"up{number}").symlink_to(top)
    (top / "b" / "other").symlink_to("c")
    (top / "none").symlink_to("none")
    found = files.find_files(f"{top}{source}")
    assert sorted(path.resolve() for path in found) == [a, b]


@pytest.mark.parametrize("source", ["a?b", "a?b/", "a?b/?c", "a?b/**", "a?b/?c/*.txt", "*?b"])
def test_a_question_mark_is_a_comma_in_the_name_of_a_directory(tmp_path, source):
    path = write(tmp_path / "a,b" / ",c" / "d.txt", b"d")
    assert files.find_files(f"{tmp_path}/{source}") == [path]


@pytest.mark.parametrize("source", ["", "/*", "/**"])
def test_what_spark_adds_is_skipped(tmp_path, source):
    """But not text whose name begins with _, nor what is named by itself."""
    text, marker = write(tmp_path / "_a.txt", b"a"), write(tmp_path / "_SUCCESS", b"")
    for name in ("_committed_1", "_started_1", "_delta_log/0.json", "._SUCCESS.crc", "_metadata"):
        write(tmp_path / name, b"")
    assert files.find_files(f"{tmp_path}{source}") == [text]
    assert files.find_files(str(marker)) == [marker]


@pytest.mark.parametrize("source", ["*.gz", "none.txt", "empty", "gs://bucket/text.txt"])
def test_missing_files_are_named(tmp_path, monkeypatch, source):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "empty" / ".keep", b"")
    with pytest.raises(BadInput) as error:
        files.find_files(source)
    assert source in str(error.value) and "no such file" not in str(error.value)


def texts(path, form="lines", problems=None) -> list[bytes]:
    return [*files.texts(path, Reading(form, "lines"), Counter() if problems is None else problems)]


def read(path, form="lines") -> bytes:
    return b"".join(texts(path, form))


def zstd(content: bytes) -> bytes:
    """Compresses a text as two frames, like parallel programs."""
    compress, half = pyarrow.Codec("zstd").compress, len(content) // 2
    return b"".join(compress(part, asbytes=True) for part in (content[:half], content[half:]))


@pytest.mark.parametrize(
    "compress, suffix",
    [(gzip.compress, ".gz"), (lzma.compress, ".xz"), (bz2.compress, ".BZ2"), (zstd, ".zst")],
)
def test_compressed_files_are_read_and_damaged_ones_named(tmp_path, compress, suffix):
    content = b"\n\n".join(b"%d" % number for number in range(50_000))
    path = write(tmp_path / f"a.txt{suffix}", compress(content))
    assert read(path) == content
    for damaged in (path.read_bytes()[:-20], b"this is no archive"):
        with pytest.raises(BadInput, match=str(path)):
            read(write(path, damaged))


@pytest.mark.parametrize("content", [b"", b"\n", b"a", b"a\r\n\r\nb", b"a\n\n\n\nb\n\nc\n"])
@pytest.mark.parametrize("form", ["lines", "files", "wiki", "jsonl"])
def test_no_byte_is_lost_between_pieces(tmp_path, monkeypatch, content, form):
    path = write(tmp_path / "a.txt", content)
    for size in (1, 2, 3, 1000):
        monkeypatch.setattr(files, "PIECE", size)
        assert read(path, form) == content


def test_a_window_that_is_too_long_is_named(tmp_path):
    """RFC 8878: a frame with a window of 256 MB, whose only block is not compressed."""
    frame = b"\x28\xb5\x2f\xfd\0\x90" + (8 * 4 + 1).to_bytes(3, "little") + b"text"
    assert read(write(tmp_path / "a.zst", frame.replace(b"\x90", b"\x88"))) == b"text"
    with pytest.raises(BadInput, match=f"{tmp_path}/b.zst: damaged.*too much memory"):
        read(write(tmp_path / "b.zst", frame))


@pytest.mark.parametrize("after", [b"", b"\r", b"\n"])
def test_carriage_returns_alone_are_line_breaks(tmp_path, after):
    path = write(tmp_path / "a.txt", b"a\rb\r\rc" + after)
    assert read(path) == b"a\nb\n\nc" + after.replace(b"\r", b"\n")
    for other in (b"a\rb\n\rc", b"a\r\nb\r\r\n"):
        assert read(write(path, other)) == other


@pytest.mark.parametrize("before", [0, 1, 999_990, 1_048_575, 1_048_576])
@pytest.mark.parametrize("after", [b"", b"\nb\n\nc"])
@pytest.mark.parametrize(
    "word", [b"x", "\u0e01".encode(), "\U0001f642".encode(), b"words ", b"\x80"]
)
def test_a_long_line_anywhere_is_cut_between_words_or_characters(tmp_path, before, after, word):
    start, line = b"a\n" * (before // 2), word * (3_200_000 // len(word))
    path = write(tmp_path / "a.txt", start + line + after)
    problems = Counter()
    found = b"".join(texts(path, "lines", problems))
    lines = found.removeprefix(start).removesuffix(after).split(b"\n")
    assert b"".join(lines) == line and not any(len(part) % len(word) for part in lines)
    assert problems[files.CUTS] == len(lines) - 1 > 0
    assert max(map(len, lines)) < 2_100_000 and problems[f"bytes of {files.CUTS}"] > 1_000_000


@pytest.mark.parametrize("end", [b"", b"\n", b'\n{"text": "a"}\n'])
def test_a_record_that_is_too_long_is_dropped_with_all_its_bytes(tmp_path, monkeypatch, end):
    monkeypatch.setattr(files, "MAX_RECORD", 1000)
    monkeypatch.setattr(files, "PIECE", 300)
    problems, record = Counter(), b"{" * 5000
    found = b"".join(texts(write(tmp_path / "a", record + end), "jsonl", problems))
    assert found.strip() == end.strip()
    assert problems == {files.TOO_LONG: 1, f"bytes of {files.TOO_LONG}": 5000}


def test_a_long_record_at_the_end_is_whole(tmp_path, monkeypatch):
    """As every line of JSON is, with or without a line break."""
    monkeypatch.setattr(files, "MAX_DOCUMENT", 1000)
    monkeypatch.setattr(files, "PIECE", 300)
    problems, record = Counter(), b'{"text": "' + b"a b " * 2000 + b'"}'
    path = write(tmp_path / "a", b"{}\n" + record)
    assert texts(path, "jsonl", problems) == [b"{}\n", record]
    assert not problems


def test_memory_does_not_grow_with_a_line_or_a_document(tmp_path, monkeypatch):
    problems = Counter()
    path = write(tmp_path / "a.jsonl", b'"' + b"x" * 40_000_000 + b'"\nend')
    assert max(map(len, files.read_lines(path, "lines", problems, files.PIECE))) < 3_000_000
    assert max(map(len, texts(path, "jsonl", problems))) < 18_000_000
    monkeypatch.setattr(files, "MAX_DOCUMENT", 3_000_000)
    content = b"some words of a line\n" * 400_000
    found = texts(write(tmp_path / "a.txt", content), "lines", problems)
    assert len(found) == 3 and b"".join(found) == content
    numbers = {files.TOO_LONG: 1, files.PARTED: 2, files.CUTS: problems[files.CUTS]}
    assert numbers_of(problems) == numbers

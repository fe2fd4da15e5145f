"""The doors of text and of vocabularies: what stands in the store is counted by readers of a few lines."""

import bz2
import functools
import gzip
import html
import itertools
import json
import lzma
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import sentencepiece
import tokenizers
from hypothesis import strategies as st
from kits.corpora import make_text

from bert_jax.cli import main
from fuzz import reference
from fuzz.attempts import Attempt, captured, parsed
from fuzz.damage import change_file, changed_bytes

UNPACKERS = {".txt": bytes, ".gz": gzip.decompress, ".bz2": bz2.decompress, ".xz": lzma.decompress}
PACKERS = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}
ODD = [
    "ünïcödé words",
    "漢字かな交じり文。",
    "العربية",
    "\u200b\u200d",
    "a\u2028b",
    "x" * 150,
    "[MASK] [CLS]",
]
ODD += [
    "\x01\x02",
    "\ufffd\ufffe",
    "🙂 🙃",
    "é" * 1500 + " end",
    "<doc id=1>",
    "</doc>",
    "{",
    "\t\x0b\x0c",
]
FORMS = ("lines", "files", "wiki", "jsonl")


def write_form(form: str, documents: list[str]) -> bytes:
    if form == "jsonl":
        return "".join(json.dumps({"text": text}) + "\n" for text in documents).encode()
    if form == "wiki":
        blocks = (
            f'<doc id="{i}" title="T{i}">\nT{i}\n\n{t}\n</doc>\n' for i, t in enumerate(documents)
        )
        return "".join(blocks).encode()
    return ("\n\n" if form == "lines" else "\n").join(documents).encode()


def text(draw, world, place) -> Attempt:
    form, suffix = draw(st.sampled_from(FORMS)), draw(st.sampled_from(["", "", "", *PACKERS]))
    documents = make_text(draw(st.integers(0, 8)), draw(st.integers(0, 99)))
    documents += draw(
        st.lists(st.sampled_from(ODD) | st.text(st.characters(codec="utf-8")), max_size=4)
    )
    content = write_form(form, documents)
    when = draw(st.sampled_from(["before", "after", "never", "file"]))
    content = changed_bytes(draw, content) if when == "before" else content
    content = PACKERS[suffix](content)
    content = changed_bytes(draw, content) if when == "after" else content
    path = place / "text" / f"corpus.txt{suffix}"
    path.parent.mkdir()
    path.write_bytes(content)
    note = f"{form}{suffix} {content[:2000]!r}"
    if when == "file":
        note += f" {change_file(draw, path)}"
    asked = draw(st.sampled_from([form] * 6 + list(FORMS)))
    source = draw(st.sampled_from([path, path, path.parent]))
    settings = {"corpus.source": source, "corpus.format": asked, "filter.duplicates": False}
    store = place / "store"
    arguments = ["prepare", *world.arguments(store=store, **settings), "--json", "-"]

    def oracle(code, out, err):
        report = parsed(out)
        found = read(source, asked)
        kept = sum(report[split]["documents"] for split in ("train", "heldout"))
        # An end of an element that was never begun is counted as an empty document of a wiki.
        number = report["documents_read"] if asked == "wiki" else len(found)
        if report["documents_read"] != number or kept + report["empty"] != number:
            return f"{report['documents_read']} documents, {kept} kept, expected {number}"
        pieces = list(read_vocabulary(world.path / "vocab.txt"))
        cut = functools.partial(reference.cut, pieces=pieces)
        return sound(store) or other_documents(store, found, cut)

    return Attempt(arguments, oracle, f"{note} as {asked}")


# --- What stands in files and in stores -----------------------------------------------------------


def read(source: Path, form: str) -> list[list[str]]:
    """The documents of a file or a directory, as lists of lines; the document of a file may be empty."""
    paths = [source] if source.is_file() else sorted(source.rglob("*"))
    contents = (UNPACKERS[path.suffix](path.read_bytes()) for path in paths if path.is_file())
    return [document for content in contents for document in READERS[form](content)]


def other_documents(store: Path, documents: list[list[str]], cut: Callable) -> str:
    """What of the documents is not in the store, or the other way round. cut: a clear line -> ids."""
    clear = [document for document in documents if all(map(reference.is_clear, document))]
    ids = (tuple(i for line in document for i in cut(line)) for document in clear)
    expected, found = Counter(filter(None, ids)), Counter(filter(None, stored(store)))
    missing, others = expected - found, found - expected
    if missing:
        return f"not in the store: {list(missing)[:2]}; there: {list(others)[:2]}"
    # Of the others nobody but the library knows how they are cut.
    unclear = len(documents) - len(clear)
    return f"made up: {list(others)[:3]}" if others.total() > unclear else ""


def stored(store: Path) -> list[tuple[int, ...]]:
    """The ids of every document."""
    found = []
    for split in ("train", "heldout"):
        names = ("tokens", "sentence_ends", "document_ends")
        tokens, sentences, documents = (np.load(store / split / f"{name}.npy") for name in names)
        found += np.split(tokens, sentences[documents[:-1] - 1])
    return [tuple(document.tolist()) for document in found]


def is_text(line: bytes) -> bool:
    try:
        return b"\0" not in line and line.decode() is not None
    except UnicodeDecodeError:
        return False


def read_text(content: bytes) -> list[str]:
    """Lines without white space around them; those that are not text are not there."""
    lines = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    return [line.decode().strip() for line in lines if is_text(line)]


def read_lines(content: bytes) -> list[list[str]]:
    """Documents of lines, parted by blank lines."""
    groups = itertools.groupby(read_text(content), key=bool)
    return [[*lines] for full, lines in groups if full]


def read_file(content: bytes) -> list[list[str]]:
    return [[line for line in read_text(content) if line]]


def read_wiki(content: bytes) -> list[list[str]]:
    """What stands in and between elements <doc ... title="T"> T ... </doc>, without the title T."""
    documents = [[]]
    for line in read_text(content):
        if line.startswith("<doc ") and line.endswith(">"):
            documents.append([line])
        elif line == "</doc>":
            documents.append([])
        elif line.startswith("<doc "):
            raise ValueError("an element that does not end")
        elif line:
            documents[-1].append(line)
    return [without_head(document) for document in documents if document]


def without_head(lines: list[str]) -> list[str]:
    if not lines[0].startswith("<doc "):
        return lines
    title = re.match(r'<doc [^>]*?title="(.*?)"[^"]*>$', lines[0])
    titled = title and lines[1:] and html.unescape(lines[1]) == html.unescape(title[1])
    return lines[2 if titled else 1 :]


def read_jsonl(content: bytes) -> list[list[str]]:
    """A document for each line that has a text."""
    documents = []
    for line in content.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        try:
            value = json.loads(line.decode())
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and isinstance(value.get("text"), str):
            lines = value["text"].split("\n")
            documents.append([line.strip() for line in lines if line.strip() and "\0" not in line])
    return documents


READERS = {"lines": read_lines, "files": read_file, "wiki": read_wiki, "jsonl": read_jsonl}


def sound(store: Path) -> str:
    """What verify says of a store that was made just now."""
    file = store.with_name("verified.json")
    with captured():
        code = main(["verify", "--store", str(store), "--json", str(file)])
    return "" if code == 0 else f"verify: {file.read_text()}"


def vocabulary(draw, world, place) -> Attempt:
    kinds = {"vocab.txt": world.path / "vocab.txt"}
    kinds |= {"a.model": world.path / "unigram" / "sentencepiece.model"}
    kinds |= {"tokenizer.json": world.path / "byte_bpe" / "tokenizer.json"}
    kinds |= {"bert.json": world.path / "exported" / "tokenizer.json"}
    name = draw(st.sampled_from(list(kinds)))
    path = place / name
    shutil.copyfile(kinds[name], path)
    note = change_file(draw, path)
    store = place / "store"
    corpus = world.path / "corpus.txt"
    changes = {"tokenizer.path": path, "store": store, "corpus.source": corpus}
    changes |= {"filter.duplicates": False}
    arguments = ["prepare", *world.arguments(**changes), "--json", "-"]

    def oracle(code, out, err):
        expected, special = read_vocabulary(path), {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}
        found = read_vocabulary(
            next(p for p in (store / "tokenizer").iterdir() if p.stem != "settings")
        )
        missing = set(expected.items()) - set(found.items())
        if missing and not {piece for piece, _ in missing} <= special:
            return f"pieces are lost or have other ids: {sorted(missing)[:5]}"
        ids = json.loads((store / "manifest.json").read_text())["special"]
        cut = encoder(path, ids["unk"], {*ids.values()})
        return sound(store) or other_documents(store, read(corpus, "lines"), cut)

    if os.path.isfile(path):
        note += f" {path.read_bytes()[:1500]!r}"
    return Attempt(arguments, oracle, f"{name} {note}")


def encoder(path: Path, unknown: int, special: set[int]) -> Callable:
    """What cuts a line as the library of each kind of file does, but never into special pieces."""
    if path.suffix == ".txt":
        return functools.partial(reference.cut, pieces=list(read_vocabulary(path)))
    if path.suffix == ".model":
        encode = sentencepiece.SentencePieceProcessor(model_proto=path.read_bytes()).encode
    else:
        library = tokenizers.Tokenizer.from_str(path.read_text())
        library.no_truncation()
        library.no_padding()

        def encode(line):
            return library.encode(line, add_special_tokens=False).ids

    return lambda line: [unknown if i in special else i for i in encode(line)]


def read_vocabulary(path: Path) -> dict[str, int]:
    """{piece: id} as the library of each kind of file has them."""
    if path.suffix == ".txt":
        lines = path.read_bytes().decode().removesuffix("\n").replace("\r\n", "\n").split("\n")
        return {piece: number for number, piece in enumerate(lines)}
    if path.suffix == ".model":
        library = sentencepiece.SentencePieceProcessor(model_proto=path.read_bytes())
        return {library.id_to_piece(number): number for number in range(len(library))}
    return tokenizers.Tokenizer.from_str(path.read_text()).get_vocab()

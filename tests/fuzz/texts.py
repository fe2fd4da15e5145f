"""The doors of text and of vocabularies: what stands in the store is counted by readers of a few lines."""

import functools
import gzip
import itertools
import json
import os
import re
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import sentencepiece
import tokenizers
from hypothesis import strategies as st
from kits.corpora import make_text

from bert_jax.cli import main
from fuzz.attempts import Attempt, captured, text_of
from fuzz.damage import change_file, changed_bytes
from fuzz.world import STEPS

UNPACKERS = {".txt": bytes, ".gz": gzip.decompress}
ODD = ["漢字かな。", "العربية", "\u200b\u200d", "a\u2028b", "[MASK]", "\x01", "\ufffd\ufffe", "🙂"]
ODD += ["é" * 1500 + " end", "<doc id=1>", "</doc>", "{", "\t\x0b"]
# What the library alone cuts: no special piece, no half of a character, not parted.
CLEAR = re.compile(r"[^\[\ud800-\udfff]{0,2000}")


def write_form(form: str, documents: list[str]) -> bytes:
    if form == "jsonl":
        return "".join(json.dumps({"text": text}) + "\n" for text in documents).encode()
    if form == "wiki":
        text = '<doc id="{}" title="T{}">\nT{}\n\n{}\n</doc>\n'
        return "".join(text.format(i, i, i, body) for i, body in enumerate(documents)).encode()
    return ("\n\n" if form == "lines" else "\n").join(documents).encode()


def text(draw, world, place) -> Attempt:
    form, suffix = draw(st.sampled_from(FORMS)), draw(st.sampled_from(["", "", ".gz"]))
    documents = make_text(draw(st.integers(0, 8)), draw(st.integers(0, 99)))
    more = st.sampled_from(ODD) | st.text(st.characters(codec="utf-8"))
    documents += draw(st.lists(more, max_size=4))
    content = write_form(form, documents)
    content = changed_bytes(draw, content) if draw(st.booleans()) else content
    path = place / "text" / f"corpus.txt{suffix}"
    path.parent.mkdir()
    path.write_bytes(gzip.compress(content) if suffix else content)
    note = f"{form}{suffix} {content[:2000]!r}"
    if draw(st.booleans()):
        note += f" {change_file(draw, path)}"
    asked = draw(st.sampled_from([form] * 6 + list(FORMS)))
    source = draw(st.sampled_from([path, path.parent]))
    settings = {"corpus.source": source, "corpus.format": asked, "filter.duplicates": False}
    settings["tokenizer.path"] = world.path / "run/tokenizer/vocab.txt"
    store = place / "store"

    def oracle(outcome):
        report = outcome.values
        kept = sum(report[split]["documents"] for split in ("train", "heldout"))
        if kept + report["empty"] != report["documents_read"]:
            return f"{report['documents_read']} documents, {kept} kept, {report['empty']} empty"
        if asked not in READERS:
            return sound(store)
        found = read(source, asked)
        if report["documents_read"] != len(found):
            return f"{report['documents_read']} documents, expected {len(found)}"
        return sound(store) or other_documents(world.exported[STEPS], store, found)

    arguments = ["prepare", *world.arguments(store=store, **settings), "--json", "-"]
    return Attempt(arguments, oracle, f"{note} as {asked}")


# --- What stands in files and in stores -----------------------------------------------------------


def read(source: Path, form: str) -> list[list[str]]:
    """The documents of a file or a directory, as lists of lines; the document of a file may be empty."""
    paths = [source] if source.is_file() else sorted(source.rglob("*"))
    contents = (UNPACKERS[path.suffix](path.read_bytes()) for path in paths if path.is_file())
    return [document for content in contents for document in READERS[form](content)]


def other_documents(exported: Path, store: Path, documents: list[list[str]]) -> str:
    """What of the documents is not in the store, or the other way round. exported: a model, for its tokenizer."""
    library = tokenizers.Tokenizer.from_file(str(exported / "tokenizer.json"))
    clear = [lines for lines in documents if all(map(CLEAR.fullmatch, lines))]
    cut = functools.partial(library.encode, add_special_tokens=False)
    ids = (tuple(i for line in lines for i in cut(line).ids) for lines in clear)
    expected, found = Counter(filter(None, ids)), Counter(filter(None, stored(store)))
    missing, others = expected - found, found - expected
    if missing or others.total() > len(documents) - len(clear):
        return f"not in the store: {list(missing)[:2]}; there: {list(others)[:2]}"
    return ""


def stored(store: Path) -> list[tuple[int, ...]]:
    """The ids of every document."""
    found = []
    for split in ("train", "heldout"):
        names = ("tokens", "sentence_ends", "document_ends")
        tokens, sentences, documents = (np.load(store / split / f"{name}.npy") for name in names)
        found += np.split(tokens, sentences[documents[:-1] - 1])
    return [tuple(document.tolist()) for document in found]


def read_text(content: bytes) -> list[str]:
    """Lines without white space around them; those that are not text are not there."""
    lines = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    found = (line.decode(errors="surrogateescape") for line in lines if b"\0" not in line)
    return [line.strip() for line in found if not re.search("[\udc80-\udcff]", line)]


def read_lines(content: bytes) -> list[list[str]]:
    """Documents of lines, parted by blank lines."""
    groups = itertools.groupby(read_text(content), key=bool)
    return [[*lines] for full, lines in groups if full]


def read_file(content: bytes) -> list[list[str]]:
    return [[line for line in read_text(content) if line]]


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


READERS = {"lines": read_lines, "files": read_file, "jsonl": read_jsonl}
FORMS = (*READERS, "wiki")  # of which tests/data has a reader


def sound(store: Path) -> str:
    """What verify says of a store that was made just now."""
    with captured() as (out, _):
        code = main(["verify", "--store", str(store)])
    return "" if code == 0 else f"verify: {text_of(out)}"


def vocabulary(draw, world, place) -> Attempt:
    kinds = {"vocab.txt": world.path / "run/tokenizer/vocab.txt"}
    kinds |= {"a.model": world.path / "unigram/sentencepiece.model"}
    kinds |= {"tokenizer.json": world.path / "byte_bpe/tokenizer.json"}
    name = draw(st.sampled_from(list(kinds)))
    path, store = place / name, place / "store"
    shutil.copyfile(kinds[name], path)
    note = change_file(draw, path)
    if os.path.isfile(path):
        note += f" {path.read_bytes()[:1500]!r}"

    def oracle(outcome):
        pieces = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}  # may be added
        saved = next(p for p in (store / "tokenizer").iterdir() if p.stem != "settings")
        missing = read_vocabulary(path).items() - read_vocabulary(saved).items()
        lost = [piece for piece, _ in missing if piece not in pieces]
        return f"lost or with other ids: {sorted(lost)[:5]}" if lost else sound(store)

    settings = {"tokenizer.path": path, "store": store, "filter.duplicates": False}
    return Attempt(["prepare", *world.arguments(**settings), "--json", "-"], oracle, note)


def read_vocabulary(path: Path) -> dict[str, int]:
    """{piece: id} as the library of each kind of file has them."""
    if path.suffix == ".txt":
        lines = path.read_bytes().decode().removesuffix("\n").replace("\r\n", "\n").split("\n")
        return {piece: number for number, piece in enumerate(lines)}
    if path.suffix == ".model":
        library = sentencepiece.SentencePieceProcessor(model_proto=path.read_bytes())
        return {library.id_to_piece(number): number for number in range(len(library))}
    return tokenizers.Tokenizer.from_str(path.read_text()).get_vocab()

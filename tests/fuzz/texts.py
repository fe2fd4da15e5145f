"""The doors of text and of vocabularies: what stands in the store is counted by readers of a few lines."""

import bz2
import gzip
import json
import lzma
import os
import shutil
import unicodedata
from pathlib import Path

import sentencepiece
import tokenizers
from corpora import make_text
from hypothesis import strategies as st

from bert_jax.main import main
from fuzz.attempts import Attempt, captured, parsed
from fuzz.damage import change_file, changed_bytes

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

    def oracle(code, out):
        problem = sound(store)
        report = parsed(out)
        kept = sum(report[split]["documents"] for split in ("train", "heldout"))
        sentences = sum(report[split]["sentences"] for split in ("train", "heldout"))
        if suffix or asked not in ("lines", "jsonl") or not source.is_file() or problem:
            return problem
        found = (read_lines if asked == "lines" else read_jsonl)(path.read_bytes())
        if report["documents_read"] != len(found) or kept + report["empty"] != len(found):
            return f"{report['documents_read']} documents, {kept} kept, expected {len(found)}"
        lines = [line for document in found for line in document]
        clear = all(any(map(is_plain, line)) and len(line) < 1000 for line in lines)
        if asked == "lines" and (sentences != len(lines) if clear else kept > len(lines)):
            return f"{sentences} sentences, expected {len(lines)}"
        return ""

    return Attempt(arguments, oracle, f"{note} as {asked}")


def is_plain(character: str) -> bool:
    return unicodedata.category(character)[0] in "LN" and character != "\ufffd"


def is_text(line: bytes) -> bool:
    try:
        return b"\0" not in line and line.decode() is not None
    except UnicodeDecodeError:
        return False


def read_lines(content: bytes) -> list[list[str]]:
    """Documents of lines, parted by blank lines; lines that are not text are not there."""
    documents = [[]]
    for line in filter(is_text, content.removeprefix(b"\xef\xbb\xbf").split(b"\n")):
        if line.decode().strip():
            documents[-1].append(line.decode().strip())
        else:
            documents.append([])
    return [document for document in documents if document]


def read_jsonl(content: bytes) -> list[list[str]]:
    """A document for each line that has a text."""
    documents = []
    for line in content.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        try:
            value = json.loads(line.decode())
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and isinstance(value.get("text"), str):
            documents.append([value["text"]])
    return documents


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
    changes = {"tokenizer.path": path, "store": store, "corpus.source": world.path / "corpus.txt"}
    arguments = ["prepare", *world.arguments(**changes), "--json", "-"]

    def oracle(code, out):
        expected, special = read_vocabulary(path), {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}
        found = read_vocabulary(
            next(p for p in (store / "tokenizer").iterdir() if p.stem != "settings")
        )
        problem = sound(store)
        missing = set(expected.items()) - set(found.items())
        if missing and not {piece for piece, _ in missing} <= special:
            return f"pieces are lost or have other ids: {sorted(missing)[:5]}"
        return problem

    if os.path.isfile(path):
        note += f" {path.read_bytes()[:1500]!r}"
    return Attempt(arguments, oracle, f"{name} {note}")


def read_vocabulary(path: Path) -> dict[str, int]:
    """{piece: id} as the library of each kind of file has them."""
    if path.suffix == ".txt":
        lines = path.read_bytes().decode().removesuffix("\n").replace("\r\n", "\n").split("\n")
        return {piece: number for number, piece in enumerate(lines)}
    if path.suffix == ".model":
        library = sentencepiece.SentencePieceProcessor(model_proto=path.read_bytes())
        return {library.id_to_piece(number): number for number in range(len(library))}
    return tokenizers.Tokenizer.from_str(path.read_text()).get_vocab()

"""Targets of texts and vocabularies: the store is complete, with all documents and all pieces."""

import gzip
import json
import shutil
from pathlib import Path

import sentencepiece
import tokenizers
from hypothesis import strategies as st
from kits.corpora import make_text

from fuzz.attempts import Attempt, done
from fuzz.damage import change_file, changed_bytes

FORMS = ("lines", "files", "jsonl", "wiki")
ODD = ["漢字かな。", "العربية", "\u200b\u200d", "a\u2028b", "[MASK]", "\x01", "\ufffd\ufffe", "🙂"]
ODD += ["é" * 1500 + " end", "<doc id=1>", "</doc>", "{", "\t\x0b"]


def write_form(form: str, documents: list[str]) -> bytes:
    """Returns a file with the documents in this format."""
    if form == "jsonl":
        return "".join(json.dumps({"text": text}) + "\n" for text in documents).encode()
    if form == "wiki":
        text = '<doc id="{}" title="T{}">\nT{}\n\n{}\n</doc>\n'
        return "".join(text.format(i, i, i, body) for i, body in enumerate(documents)).encode()
    return ("\n\n" if form == "lines" else "\n").join(documents).encode()


def text(draw, world, directory) -> Attempt:
    """The oracle counts documents. For their content see tests/data."""
    form, suffix = draw(st.sampled_from(FORMS)), draw(st.sampled_from(["", "", ".gz"]))
    documents = make_text(draw(st.integers(0, 12)), draw(st.integers(0, 99)))
    more = st.sampled_from(ODD) | st.text(st.characters(codec="utf-8"))
    odd = draw(st.lists(more, max_size=4))
    damaged = draw(st.sampled_from(["nothing", "nothing", "text", "file"]))
    content = write_form(form, documents + odd)
    content = changed_bytes(draw, content) if damaged == "text" else content
    path = directory / "text" / f"corpus.txt{suffix}"
    path.parent.mkdir()
    path.write_bytes(gzip.compress(content) if suffix else content)
    if damaged == "file":
        change_file(draw, path)
    configured = draw(st.sampled_from([form] * 6 + list(FORMS)))
    # The number of documents is known if odd text cannot split them: in JSON it never does.
    is_known = form == "jsonl" or form != "files" and not odd
    is_known = is_known and configured == form and damaged == "nothing"
    source = draw(st.sampled_from([path, path.parent]))
    settings = {"corpus.source": source, "corpus.format": configured, "filter.duplicates": False}
    settings["tokenizer.path"] = world.path / "run/tokenizer/vocab.txt"
    store = directory / "store"

    def oracle(outcome):
        report = outcome.values
        assert not is_known or report["documents_read"] == len(documents) + len(odd)
        kept = sum(report[split]["documents"] for split in ("train", "heldout"))
        assert kept + report["empty"] == report["documents_read"]
        done("verify", "--store", store)

    arguments = ["prepare", *world.arguments(store=store, **settings), "--json", "-"]
    return Attempt(arguments, oracle)


def vocabulary(draw, world, directory) -> Attempt:
    kinds = {"vocab.txt": world.path / "run/tokenizer/vocab.txt"}
    kinds |= {"a.model": world.path / "unigram/sentencepiece.model"}
    kinds |= {"tokenizer.json": world.path / "byte_bpe/tokenizer.json"}
    name = draw(st.sampled_from(list(kinds)))
    path, store = directory / name, directory / "store"
    shutil.copyfile(kinds[name], path)
    change_file(draw, path)

    def oracle(outcome):
        special = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}  # prepare may add these
        saved = next(p for p in (store / "tokenizer").iterdir() if p.stem != "settings")
        missing = read_vocabulary(path).items() - read_vocabulary(saved).items()
        assert {piece for piece, _ in missing} <= special
        done("verify", "--store", store)

    settings = {"tokenizer.path": path, "store": store, "filter.duplicates": False}
    return Attempt(["prepare", *world.arguments(**settings), "--json", "-"], oracle)


def read_vocabulary(path: Path) -> dict[str, int]:
    """Returns {piece: id}, as read by the library of each kind of file."""
    if path.suffix == ".txt":
        lines = path.read_bytes().decode().removesuffix("\n").replace("\r\n", "\n").split("\n")
        return {piece: number for number, piece in enumerate(lines)}
    if path.suffix == ".model":
        library = sentencepiece.SentencePieceProcessor(model_proto=path.read_bytes())
        return {library.id_to_piece(number): number for number in range(len(library))}
    return tokenizers.Tokenizer.from_str(path.read_text()).get_vocab()

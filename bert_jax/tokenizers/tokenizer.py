"""The way in: tokenizers that were saved here, given by others, or trained.

What cuts the text is in the files beside: WordPiece (vocab.txt), SentencePiece (.model) and whatever a Hugging Face
tokenizer.json says. Each has a class on top of base.py, `given` for the files of others, `read` for those that its
`write` wrote, and `train`.
"""

import contextlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from bert_jax.errors import BadInput, one_line
from bert_jax.tokenizers import huggingface, sentencepiece, wordpiece
from bert_jax.tokenizers.base import Tokenizer

SAVED = {module.KIND: module for module in (wordpiece, sentencepiece, huggingface)}


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Within it what a library or the file system raises is BadInput of this path."""
    try:
        yield
    except (AttributeError, KeyError, OSError, RuntimeError, TypeError, ValueError) as error:
        raise BadInput(f"{path}: not a tokenizer ({one_line(error)})") from None


def load(directory: str | Path) -> Tokenizer:
    """The tokenizer that `save` wrote."""
    path = Path(directory) / "settings.json"
    with naming(path):
        settings = json.loads(path.read_text(encoding="utf-8"))
        return SAVED[settings["kind"]].read(Path(directory), settings)


def given(path: str | Path, lowercase: bool) -> Tokenizer:
    """A tokenizer of a published file: vocab.txt (any .txt), a .model or a tokenizer.json (any .json).

    lowercase: for vocab.txt; the others know theirs.
    """
    path = Path(path)
    with naming(path):
        if path.suffix == ".txt":
            return wordpiece.given(path, lowercase)
        if path.suffix == ".model":
            return sentencepiece.given(path)
        if path.suffix == ".json":
            return huggingface.given(path)
    raise BadInput(f"{path}: expected a vocab.txt, a .model or a tokenizer.json")


def train(kind: str, texts: Iterable[str], size: int, lowercase: bool) -> Tokenizer:
    """A vocabulary of `size` pieces, special ones first; equal texts give equal ones. Holds the texts in memory.

    kind: wordpiece or byte_bpe (`size` at most), unigram or bpe (`size` exactly). Raises BadInput where `size` is too
    small or too large for the texts.
    """
    texts = list(texts)
    if kind == "wordpiece":
        return wordpiece.train(texts, size, lowercase)
    if kind == "byte_bpe":
        return huggingface.train(texts, size, lowercase)
    return sentencepiece.train(kind, texts, size, lowercase)

"""The interface of this package: loads saved tokenizers, reads external ones, and trains new ones.

wordpiece.py (vocab.txt), sentencepiece.py (.model) and huggingface.py (tokenizer.json) each define a subclass of
base.Tokenizer, and the functions `from_file` (reads an external file), `read` (reads what `write` wrote) and `train`.
bpe_files.py reads the two files of GPT-2 and of GPT as huggingface.py would read their tokenizer.json.
"""

from collections.abc import Iterable
from pathlib import Path

from bert_jax.errors import BadInput
from bert_jax.storage import json_file
from bert_jax.tokenizers import bpe_files, huggingface, sentencepiece, settings_files, wordpiece
from bert_jax.tokenizers.base import Tokenizer, as_bad_input
from bert_jax.tokenizers.training import DEFAULTS, Training

MODULES = {module.KIND: module for module in (wordpiece, sentencepiece, huggingface)}
# The files that may be beside one of a tokenizer and belong to it.
BESIDE = (
    *(module.FILE for module in MODULES.values()),
    *bpe_files.PIECES,
    *bpe_files.MERGES,
    "settings.json",
    settings_files.SETTINGS,
    settings_files.SPECIAL_TOKENS,
)


def load(directory: str | Path) -> Tokenizer:
    """Loads a tokenizer that `save` wrote. Raises BadInput that names the directory: either file may be wrong."""
    path = Path(directory)
    with as_bad_input(path):
        settings = json_file.read(path / "settings.json")
        return MODULES[settings["kind"]].read(path, settings)


def from_file(
    path: str | Path, lowercase: bool, add_special: bool = False, keep_accents: bool = False
) -> Tokenizer:
    """Reads an external tokenizer: vocab.txt (any .txt), a .model, tokenizer.json (any .json), or the two files of
    bpe_files.py, of which `path` is one; or a directory with tokenizer.json or these two; or that of a run or a store,
    or the directory of its tokenizer, as it is there. Raises BadInput.

    lowercase, keep_accents: for vocab.txt; the other files have their own rules.
    add_special: appends the special tokens that it lacks; otherwise the pieces are those of the file.
    """
    path = Path(path)
    if (path / "tokenizer").is_dir():
        path /= "tokenizer"
    if (path / "settings.json").is_file() and not add_special:
        return load(path)
    if (path / huggingface.FILE).is_file():
        path = path / huggingface.FILE
    with as_bad_input(path):
        if path.is_dir() or path.name in bpe_files.PIECES + bpe_files.MERGES:
            return bpe_files.from_file(path, add_special)
        if path.suffix == ".txt":
            return wordpiece.from_file(path, lowercase, add_special, keep_accents)
        if path.suffix == ".model":
            return sentencepiece.from_file(path, add_special)
        if path.suffix == ".json":
            return huggingface.from_file(path, add_special)
    raise BadInput(
        f"{path}: expected a vocab.txt, a .model, a tokenizer.json, or vocab.json beside merges.txt"
    )


def train(
    kind: str,
    texts: Iterable[str],
    size: int,
    lowercase: bool,
    is_exact: bool = False,
    training: Training = DEFAULTS,
) -> Tokenizer:
    """Trains a tokenizer of `size` pieces, special tokens first. Deterministic. Holds the texts in memory.

    kind: wordpiece or byte_bpe (at most `size` pieces), unigram or bpe (exactly `size`), or bytes, which needs neither
        texts nor size. Raises BadInput if `size` is too small or too large for the texts.
    is_exact: whether byte_bpe keeps the white space of texts.
    training: the keys of config.tokenizer that the kind has.
    """
    if kind == "bytes":
        return huggingface.bytes_of_text(lowercase, training)
    texts = list(texts)  # here, since sentencepiece converts errors of an iterator
    if kind == "wordpiece":
        return wordpiece.train(texts, size, lowercase, training)
    if kind == "byte_bpe":
        return huggingface.train(texts, size, lowercase, is_exact, training)
    return sentencepiece.train(kind, texts, size, lowercase, training)

"""Tokenizers of the Hugging Face `tokenizers` library: an existing tokenizer.json, byte-level BPE, or bytes.

Ids equal those of the library and of transformers' fast tokenizers, except that special tokens are not read from text;
all other added tokens are.
"""

import functools
import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tokenizers
from tokenizers import decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer

from bert_jax.errors import BadInput
from bert_jax.storage import json_file
from bert_jax.tokenizers import settings_files, wordpiece
from bert_jax.tokenizers.base import Tokenizer, as_bad_input
from bert_jax.tokenizers.corpus_encoder import CachedEncoder, encode_documents, flatten
from bert_jax.tokenizers.sample import lines
from bert_jax.tokenizers.special_tokens import SPECIAL, added_token, find_ids
from bert_jax.tokenizers.training import DEFAULTS, Training

KIND = "library"
FILE = "tokenizer.json"
SHOWN = str.maketrans({" ": "▁", "\n": r"\n", "\r": r"\r", "\t": r"\t"})
# {prefix of pieces that begin a word: the rule that it needs}; byte-level pieces never contain the first
MARKS = {"▁": "", "Ġ": "ByteLevel"}
# Units for the cache: byte-level rules begin a new word at every single space between two other
# characters, whatever comes before. Other white space stays inside a unit.
SPACED = re.compile(r"[^\S\n]*\S+(?:(?! \S)[^\S\n]+\S*)*|[^\S\n]+|\n")
# Rules that give a unit the same result in any text.
BY_WORD = "Lowercase", "NFC", "NFKC", "Digits"
FORMS = {"nfc": normalizers.NFC(), "nfkc": normalizers.NFKC()}
# A step that adds a space before a text, but not before each of its parts; and the same in tokenizer.json.
ADD_SPACE = pre_tokenizers.Metaspace(" ", "first", split=False)
FIRST_SPACE = json.loads(ADD_SPACE.__getstate__())
# A text with characters that vocabularies lack: private use, unassigned, an ideograph, an emoji, an accent.
PROBE = "a \ue000\U000e0fff b 鱼🙂\u0301 \x00"


class HuggingFace(Tokenizer):
    """The tokenizer of a tokenizer.json.

    document: the parsed file. In it, `special` marks the added tokens that are not read from text: special tokens, and
        pieces of rows that only pad the embeddings.
    """

    kind = KIND
    file = FILE

    def __init__(self, document: dict, special: dict[str, int], path: object = FILE):
        self.document = document
        self.tokenizer = open_library(document, path)
        super().__init__(list_pieces(self.tokenizer, path), special, path)
        self.ends = document["model"].get("end_of_word_suffix") or ""
        marks = word_marks(document, self.pieces)
        self.mark, self.continues = marks
        self.marks_words = any(marks) or document["model"]["type"] == "WordLevel"

    @property
    def added_ids(self) -> list[int]:
        return [token["id"] for token in self.document["added_tokens"]]

    @property
    def identity(self) -> list:
        return [self.document, self.special]

    @functools.cached_property
    def adds_space(self) -> bool:
        """Whether the first piece of a text has a space that the text lacks."""
        ids = self.tokenizer.encode("a", add_special_tokens=False).ids
        return self.tokenizer.decode(ids).startswith(" ")

    def decode_pieces(self, ids: list[int]) -> str:
        text = super().decode_pieces(ids)
        return text.removeprefix(" ") if self.adds_space else text

    @property
    def rules(self) -> list:
        model = dict(self.document["model"])
        for key in ("continuing_subword_prefix", "end_of_word_suffix"):
            model[key] = model.get(key) or None
        left_out = {"model": model, "post_processor": None, "decoder": None}
        special = {name: number for name, number in self.special.items() if name != "bos"}
        return [self.document | left_out, special]

    def readable(self, number: int) -> str:
        """Returns a piece in readable form: bytes as characters, a space as "▁", other white space escaped."""
        if self.mark != "Ġ":
            return self.pieces[number]
        text = self.tokenizer.decode([int(number)], skip_special_tokens=False)
        return text.translate(SHOWN)

    def append(self, pieces: list[str], special: dict[str, int]) -> "HuggingFace":
        tokens = [added_token(piece, number) for number, piece in enumerate(pieces, self.size)]
        document = self.document | {"added_tokens": self.document["added_tokens"] + tokens}
        return HuggingFace(document, special, self.path)

    def corpus_encoder(self) -> Callable:
        if is_cachable(self.document):
            return CachedEncoder(lambda units: flatten(self.encode(units)), split)
        return functools.partial(encode_documents, self.encode_with_offsets)

    def write(self, directory: Path) -> dict:
        text = json.dumps(self.document, ensure_ascii=False, indent=1)
        (directory / FILE).write_text(text + "\n", encoding="utf-8")
        return {"special": self.special}


def split(text: str) -> tuple[list[str], np.ndarray]:
    """Returns the distinct units of a text, and int32[N], which of them its units are."""
    units = SPACED.findall(text)
    numbers = {unit: index for index, unit in enumerate(dict.fromkeys(units))}
    return list(numbers), np.fromiter(map(numbers.__getitem__, units), np.int32, len(units))


def open_library(document: dict, path: object) -> tokenizers.Tokenizer:
    """Opens a parsed tokenizer.json with the library. Raises BadInput that names `path`."""
    with as_bad_input(path):
        library = tokenizers.Tokenizer.from_str(json.dumps(document, ensure_ascii=False))
    library.encode_special_tokens = True  # encodes "[MASK]" in a document as text
    list_pieces(library, path)  # raises for gaps, over which the library loops when it writes
    return library


def list_pieces(library: tokenizers.Tokenizer, path: object) -> list[str]:
    """Returns the pieces by id; two ids may have one piece. Raises BadInput if an id below the last has none."""
    pieces = [library.id_to_token(index) for index in range(library.get_vocab_size())]
    if None in pieces:
        gap = f"{pieces.index(None)} has no piece"
        raise BadInput(f"{path}: ids have gaps, or several pieces share an id: {gap}")
    return pieces


def unused_name(number: int) -> str:
    """Returns the name of the piece of an id that no text has."""
    return f"[unused{number}]"


def word_marks(document: dict, pieces: list[str]) -> tuple[str, str]:
    """Returns the prefixes of pieces that begin a word and of pieces that continue one, at least one of them ''."""
    model = document["model"]
    if prefix := model.get("continuing_subword_prefix"):
        return "", prefix
    if model["type"] == "WordLevel" or model.get("end_of_word_suffix"):
        return "", ""
    rules = json.dumps([document["pre_tokenizer"], document["decoder"]])
    for mark, rule in MARKS.items():
        if rule in rules and any(piece.startswith(mark) for piece in pieces):
            return mark, ""
    return "", ""


def is_cachable(document: dict) -> bool:
    """Returns whether the units of a text can be encoded one by one: False if the rules are not known to allow it."""
    *before, splitter = steps(document["pre_tokenizer"], "pretokenizers") or [{}]
    if splitter.get("type") != "ByteLevel" or not splitter.get("use_regex", True):
        return False
    rules = steps(document["normalizer"], "normalizers") + before
    if not all(rule["type"] in BY_WORD or rule == FIRST_SPACE for rule in rules):
        return False
    for token in document["added_tokens"]:
        # These flags make a token depend on what is beside it.
        is_wide = any(token[flag] for flag in ("single_word", "lstrip", "rstrip"))
        if not token["special"] and (is_wide or " " in token["content"]):
            return False
    return True


def steps(part: dict | None, name: str) -> list[dict]:
    """Returns the steps of a normalizer or a pre-tokenizer, which may be a sequence; `name` is that of its steps."""
    if not part:
        return []
    return part[name] if part["type"] == "Sequence" else [part]


def read(directory: Path, settings: dict) -> HuggingFace:
    """Reads a tokenizer that `save` wrote."""
    path = directory / FILE
    return HuggingFace(json_file.read(path), settings["special"], path)


def from_file(path: Path, add_special: bool) -> Tokenizer:
    """Reads an external tokenizer.json, whose special tokens the files beside it may name, or one that `save` wrote.

    add_special: special tokens that it lacks get the ids after its last.
    """
    spellings = settings_files.find_spellings(settings_files.read(path.parent))
    settings = json_file.read_optional(path.with_name("settings.json"))
    if path.name == FILE and settings.get("kind") == KIND:
        tokenizer = read(path.parent, settings)
        if not add_special:
            return tokenizer
        spellings = tokenizer.spellings
    library = open_library(json_file.read(path), path)
    return from_library(library, path, spellings, add_special)


def from_library(
    library: tokenizers.Tokenizer, path: object, names: dict[str, str], add_special: bool = False
) -> Tokenizer:
    """Returns the tokenizer of a library's, WordPiece if it has BERT's rules.

    names: {name: spelling} of special tokens, and of `bos`; the others have the usual spellings.
    add_special: appends the special tokens that it lacks.

    Raises BadInput if it fails at characters that its vocabulary lacks, or at the spellings of special tokens.
    """
    pieces = list_pieces(library, path)
    document = json.loads(library.to_str())  # unlike older files, it has all keys
    model = document["model"]
    special, appended = find_ids(pieces, unknown_id(model), names, add_special)
    pieces += appended
    mark_special(document["added_tokens"], pieces, special)
    set_unknown(model, pieces, special.get("unk"), path)
    if "dropout" in model:
        model["dropout"] = None  # it would draw other ids at each call
    begin = names.get("bos")
    if begin in pieces and pieces.index(begin) != special.get("sep"):
        special["bos"] = pieces.index(begin)
    # Texts must not be truncated or padded by the library.
    document |= {"truncation": None, "padding": None}
    tokenizer = HuggingFace(document, special, path)
    tokenizer.encode([PROBE, *tokenizer.spellings.values()])
    return as_wordpiece(tokenizer)


def as_wordpiece(tokenizer: HuggingFace) -> Tokenizer:
    """Returns the same tokenizer as WordPiece if its rules and added tokens are exactly BERT's."""
    document = tokenizer.document
    normalizer = document["normalizer"] or {}
    lowercase = normalizer.get("lowercase")
    strip_accents = normalizer.get("strip_accents")
    if (
        lowercase is None
        or tokenizer.spellings != SPECIAL
        or len(document["added_tokens"]) > len(SPECIAL)
    ):
        return tokenizer
    if strip_accents == lowercase:  # null means the same
        document = document | {"normalizer": normalizer | {"strip_accents": None}}
    keep_accents = lowercase and strip_accents is False
    with_rules = wordpiece.WordPiece(tokenizer.pieces, lowercase, keep_accents)
    rules = json.loads(with_rules.tokenizer.to_str())
    for key in ("normalizer", "pre_tokenizer", "model"):
        if rules[key] != document[key]:
            return tokenizer
    return with_rules


def unknown_id(model: dict) -> dict[str, int]:
    """Returns {'unk': id} of the model's unknown token; {} if it has none."""
    if model["type"] == "Unigram":
        number = model["unk_id"]
    else:
        number = model["vocab"].get(model["unk_token"])
    return {} if number is None else {"unk": number}


def set_unknown(model: dict, pieces: list[str], unk: int | None, path: object) -> None:
    """Gives a model our unknown token if its own is missing: the library would fail at unknown characters.

    A BPE model may have none; the library then skips unknown characters. Raises BadInput if none is in the vocabulary.
    """
    is_optional = model["type"] == "BPE" and model["unk_token"] is None
    if is_optional or unknown_id(model):
        return
    if unk is None or unk >= len(model["vocab"]):
        problem = "the vocabulary of its model has no unknown token"
        raise BadInput(f"{path}: {problem}, such as {SPECIAL['unk']}")
    if model["type"] == "Unigram":
        model["unk_id"] = unk
    else:
        model["unk_token"] = pieces[unk]


def mark_special(tokens: list[dict], pieces: list[str], special: dict[str, int]) -> None:
    """Adds every special token to the added tokens, and marks those that are not read from text as special."""
    ids = {piece: number for number, piece in enumerate(pieces)}
    added = {token["id"] for token in tokens}
    for number in set(special.values()):
        # An unknown token may be the first of two pieces with its name.
        if number not in added and ids[pieces[number]] == number:
            tokens.append(added_token(pieces[number], number))
    for token in tokens:
        is_unused = token["content"] == unused_name(token["id"])
        token["special"] = is_unused or token["id"] in special.values()
    tokens.sort(key=lambda token: token["id"])


def train(
    texts: list[str], size: int, lowercase: bool, is_exact: bool, training: Training
) -> HuggingFace:
    """Trains byte-level BPE with at most `size` pieces, special tokens and all bytes first. Deterministic.

    lowercase: lower-cases, and keeps accents. A space is added before each text, so that its first word is encoded like
    any other. Text never encodes to [UNK], which exists all the same.

    is_exact: adds no space, and learns pieces of line breaks, too.
    """
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    least = len(SPECIAL) + len(alphabet)
    if size < least:
        raise BadInput(f"config.tokenizer.size={size}: too small, single bytes need {least}")
    library = byte_level(BPE(), lowercase, not is_exact, training)
    trainer = BpeTrainer(
        vocab_size=size,
        min_frequency=2,
        initial_alphabet=sorted(alphabet),
        special_tokens=training.special_pieces,
        show_progress=False,
    )
    library.train_from_iterator(texts if is_exact else lines(texts), trainer)
    return HuggingFace(json.loads(library.to_str()), training.special_ids)


def bytes_of_text(lowercase: bool, training: Training) -> HuggingFace:
    """Returns the tokenizer whose pieces are the special tokens and the 256 bytes of UTF-8; the id of byte b is 5 + b.

    lowercase: lower-cases; otherwise `decode` gives back every text exactly.
    """
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    # The library names a byte by the character of its number or, if that is not printable, by the next one over 255.
    others = (letter for letter in letters if letter > "\xff")
    pieces = training.special_pieces
    for byte in range(256):
        pieces.append(chr(byte) if chr(byte) in letters else next(others))
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    library = byte_level(BPE(vocabulary, []), lowercase)
    library.add_special_tokens(training.special_pieces)
    return HuggingFace(json.loads(library.to_str()), training.special_ids)


def byte_level(
    model: BPE,
    lowercase: bool = False,
    adds_space: bool = False,
    training: Training = DEFAULTS,
) -> tokenizers.Tokenizer:
    """Returns the library's tokenizer with GPT-2's rules: pieces are sequences of bytes."""
    library = tokenizers.Tokenizer(model)
    rules = [normalizers.Lowercase()] if lowercase else []
    if form := FORMS.get(training.normalization):
        rules.insert(0, form)
    if rules:
        library.normalizer = normalizers.Sequence(rules) if form else rules[0]
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=adds_space)
    if training.split_digits:  # ByteLevel would add a space before each part
        parts = [pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(False)]
        if adds_space:
            parts.insert(0, ADD_SPACE)
        library.pre_tokenizer = pre_tokenizers.Sequence(parts)
    library.decoder = decoders.ByteLevel()
    return library

"""Adds pieces to a vocabulary: the words of a file (`--add-words`, for WordPiece), each initialized as the mean of its
old pieces; or special tokens, whose embeddings are fresh."""

from pathlib import Path

import numpy as np

from bert_jax.convert import names
from bert_jax.convert.external_model import ExternalModel
from bert_jax.data.sources import tables
from bert_jax.errors import BadInput
from bert_jax.tokenizers import wordpiece
from bert_jax.tokenizers.base import Tokenizer
from bert_jax.tokenizers.special_tokens import ALL, SPECIAL


def extend(source: ExternalModel, path: Path) -> tuple[ExternalModel, dict]:
    """Returns the source with one more piece for each new word of the file, in the file's order, and a report.

    The file has one word a line, or in `text` of each row of a table; blank lines are ignored. A new row of the word
    embeddings, or of the bias of the masked-LM head, is the float32 mean of the rows of the word's old pieces. Old rows
    are unchanged. Longer words that begin with a new word are now split after it.

    The report is {added, known: words that were pieces already}.

    Raises BadInput for another tokenizer, an unreadable file, or a line that is not one word.
    """
    tokenizer = source.tokenizer
    if tokenizer.kind != wordpiece.KIND:
        problem = f"{source.directory} has a {tokenizer.kind} tokenizer"
        raise BadInput(f"--add-words {path}: {problem}; only WordPiece can be extended")
    words = dict.fromkeys(read(path, tokenizer))
    pieces = set(tokenizer.pieces)
    new = [word for word in words if word not in pieces]
    report = {"added": len(new), "known": len(words) - len(new)}
    return add_pieces(source, new, tokenizer.encode(new)), report


def read(path: Path, tokenizer: wordpiece.WordPiece) -> list[str]:
    """Returns the words of the file, normalized by the tokenizer (lower-cased and without accents, if it does that)."""
    normalized = []
    for location, line in tables.read_texts(path):
        if not line.strip():
            continue
        normal = tokenizer.normalize(line)
        words = [word for word, _ in tokenizer.tokenizer.pre_tokenizer.pre_tokenize_str(normal)]
        if len(words) != 1:
            raise BadInput(
                f"--add-words {location}: {line.strip()!r} is {len(words)} words by BERT's rules"
                f" ({' '.join(words)}); expected one word a line"
            )
        normalized += words
    return normalized


def add_pieces(source: ExternalModel, new: list[str], old_ids: list[list[int]]) -> ExternalModel:
    """Returns the source with new pieces, whose rows are means of old rows.

    old_ids: for each new piece, those of its old pieces.
    """
    old = source.tokenizer
    tokenizer = old.append(new, old.special)
    shapes = {}  # of the tensors with a row for each piece
    for parameter in names.parameters(source.settings):
        name = getattr(parameter, source.format)
        if parameter.padded and name in source.shapes:
            shapes[name] = (tokenizer.size, *source.shapes[name][1:])

    def load(name: str) -> np.ndarray:
        array = source.load(name)
        if name not in shapes:
            return array
        array = np.asarray(array, np.float32)
        means = [array[ids].mean(0, keepdims=True) for ids in old_ids]
        return np.concatenate([array, *means])

    return source._replace(
        pieces=tokenizer.size,
        tokenizer=tokenizer,
        shapes=source.shapes | shapes,
        load=load,
    )


def with_special(tokenizer: Tokenizer, is_causal: bool) -> Tokenizer:
    """Returns the tokenizer with new pieces for those of [PAD], [UNK], [CLS], [SEP] and, for a causal model, [END] that
    it lacks, and for a [CLS] or [SEP] that is another special token, too, as in GPT-2.

    Raises BadInput if one of the new ones is a piece of text already.
    """
    special = dict(tokenizer.special)
    needed = ["pad", "unk", "cls", "sep"]
    if is_causal:
        needed.append("end")
    pieces = []
    for name in needed:
        is_shared = (
            name in ("cls", "sep") and [*map(special.get, SPECIAL)].count(special.get(name)) > 1
        )
        if name not in special or is_shared:
            if ALL[name] in tokenizer.pieces:
                hint = f"{tokenizer.path} has {ALL[name]} as a piece of text"
                raise BadInput(f"config.tokenizer.add_special=True: {hint}")
            special[name] = tokenizer.size + len(pieces)
            pieces.append(ALL[name])
    return tokenizer.append(pieces, special) if pieces else tokenizer

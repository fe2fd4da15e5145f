"""`--add-words`: words of a file become pieces of a WordPiece vocabulary; each starts as the mean of its old pieces."""

from pathlib import Path

import numpy as np

from bert_jax.convert import names
from bert_jax.convert.external_model import Source
from bert_jax.errors import BadInput
from bert_jax.tokenizers import wordpiece


def extend(source: Source, path: Path) -> tuple[Source, dict]:
    """The source with a piece more for every word of a file that is not one yet, in the file's order.

    The file has one word a line, UTF-8; blank lines are nothing. The new rows of the word embeddings, and of the
    masked-LM head's bias, are the float32 means of those of the pieces into which the word was cut so far; the rows
    there were stay as they are. Words that merely begin with a new one are cut at it from now on, too.

    Also returns {added, known: one piece before, repeated: in the file, unknown: added as [UNK], for want of pieces}.
    """
    model = source.tokenizer
    if model.kind != wordpiece.KIND:
        raise BadInput(
            f"--add-words {path}: {source.place} has a {model.kind} tokenizer; words are added to WordPiece alone"
        )
    words = read(Path(path), model)
    known = set(words) & set(model.pieces)
    new = [word for word in dict.fromkeys(words) if word not in known]
    cuts = model.encode(new)
    report = {
        "added": len(new),
        "known": len(known),
        "repeated": len(words) - len(set(words)),
        "unknown": sum(model.unk in cut for cut in cuts),
    }
    return grown(source, new, cuts), report


def read(path: Path, model: wordpiece.WordPiece) -> list[str]:
    """The words of the file as the tokenizer has them: lower-cased and without accents, where it does that."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise BadInput(f"--add-words {path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise BadInput(f"--add-words {path}: not UTF-8") from None
    found = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        normal = model.tokenizer.normalizer.normalize_str(line)
        words = [word for word, _ in model.tokenizer.pre_tokenizer.pre_tokenize_str(normal)]
        if len(words) != 1:
            raise BadInput(
                f"--add-words {path}:{number}: {line.strip()!r} is {len(words)} words by BERT's rules"
                f" ({' '.join(words)}), expected one a line"
            )
        if len(words[0]) > wordpiece.LONGEST_WORD:
            most = wordpiece.LONGEST_WORD
            raise BadInput(
                f"--add-words {path}:{number}: {len(words[0])} characters; words over {most} are always [UNK]"
            )
        found += words
    return found


def grown(source: Source, new: list[str], cuts: list[list[int]]) -> Source:
    """The source with these pieces more, whose rows are means over `cuts`, the ids of the pieces of each."""
    model = source.tokenizer
    tokenizer = wordpiece.WordPiece([*model.pieces, *new], model.lowercase)
    table = names.parameters(source.settings["layers"])
    tall = {getattr(item, source.format) for item in table if item.padded} & source.shapes.keys()
    shapes = {name: (tokenizer.size, *source.shapes[name][1:]) for name in tall}

    def load(name: str) -> np.ndarray:
        array = source.load(name)
        if name not in tall:
            return array
        array = np.asarray(array, np.float32)
        return np.concatenate([array, *(array[cut].mean(0, keepdims=True) for cut in cuts)])

    return source._replace(
        pieces=tokenizer.size, tokenizer=tokenizer, shapes=source.shapes | shapes, load=load
    )

"""GPT-2's and GPT's vocabularies: a file of pieces with their ids, and one of the merges of byte pair encoding.

Ids equal those of GPT2Tokenizer and OpenAIGPTTokenizer of transformers.
"""

from pathlib import Path

import tokenizers
from tokenizers import decoders
from tokenizers.models import BPE
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from bert_jax.errors import BadInput
from bert_jax.storage import json_file
from bert_jax.tokenizers import huggingface
from bert_jax.tokenizers.base import Tokenizer

# As transformers and OpenAI name them.
PIECES = ("vocab.json", "encoder.json", "encoder_bpe_40000.json")
MERGES = ("merges.txt", "vocab.bpe", "vocab_40000.bpe")
WORD_END = "</w>"  # GPT's pieces that end a word end with it
UNKNOWN = "<unk>"  # GPT's


def from_file(path: Path, add_special: bool) -> Tokenizer:
    """Reads both files; `path` is one of them, or their directory. Raises BadInput.

    add_special: special tokens that they lack get the ids after the last.
    """
    pieces, merges = read(path)
    if not any(piece.endswith(WORD_END) for piece in pieces):
        library = huggingface.byte_level(BPE(pieces, merges))
    elif UNKNOWN in pieces:
        library = word_level(pieces, merges, UNKNOWN)
    else:
        raise BadInput(f"{path}: has pieces with {WORD_END}, but no {UNKNOWN}: not those of GPT")
    return huggingface.from_library(library, path, {}, add_special)


def read(path: Path) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Returns {piece: id} and the merges, in order, of two files; `path` is one of them, or their directory.

    Raises BadInput if there are no merges, without which all texts would be single characters.
    """
    directory = path if path.is_dir() else path.parent
    files = []
    for names in (PIECES, MERGES):
        present = [directory / name for name in names if (directory / name).is_file()]
        if not present:
            raise BadInput(f"{path}: there is none of {', '.join(names)}")
        files.append(path if path in present else present[0])
    lines = files[1].read_text(encoding="utf-8").split("\n")
    # The library refuses a line that is no pair.
    merges = [tuple(line.split(" ")) for line in lines if line and not line.startswith("#version")]
    if not merges:
        raise BadInput(f"{files[1]}: has no merges")
    return json_file.read(files[0]), merges


def word_level(
    pieces: dict[str, int], merges: list[tuple[str, str]], unknown: str
) -> tokenizers.Tokenizer:
    """Returns the library's tokenizer with GPT's rules: text is lower-cased and split as BERT's."""
    model = BPE(pieces, merges, unk_token=unknown, end_of_word_suffix=WORD_END)
    library = tokenizers.Tokenizer(model)
    library.normalizer = BertNormalizer(lowercase=True)
    library.pre_tokenizer = BertPreTokenizer()
    library.decoder = decoders.BPEDecoder(suffix=WORD_END)
    return library

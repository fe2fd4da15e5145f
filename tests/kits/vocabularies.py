"""Vocabularies that other libraries train: SentencePiece models, and one like GPT-2's."""

import io
import json
from pathlib import Path

import sentencepiece
import tokenizers as library
from kits.texts import PROSE
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from bert_jax.tokenizers import tokenizer as tokenizers
from bert_jax.tokenizers.special_tokens import TEXT_END


def make_model(**settings) -> bytes:
    """Trains a SentencePiece unigram model with the library's default settings."""
    file = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(PROSE),
        model_writer=file,
        hard_vocab_limit=False,
        minloglevel=2,
        **{"vocab_size": 300, **settings},
    )
    return file.getvalue()


def save_and_open(tmp_path, model: bytes, add_special: bool = False) -> tokenizers.Tokenizer:
    path = tmp_path / "some.model"
    path.write_bytes(model)
    return tokenizers.from_file(path, True, add_special)


def gpt2_like():
    """Byte-level BPE with one special token, which is the last piece, as GPT-2 has it."""
    theirs = library.Tokenizer(models.BPE())
    theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    theirs.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=500, initial_alphabet=alphabet)
    theirs.train_from_iterator(PROSE, trainer)
    theirs.add_special_tokens([TEXT_END])
    return theirs


def write_bpe_files(directory: Path, names: tuple[str, str], is_gpt: bool) -> Path:
    """Writes a vocabulary and its merges as GPT-2 or GPT have them; returns the directory.

    is_gpt: lower-cased words that end with </w>, and an unknown token, the first piece.
    """
    theirs = library.Tokenizer(models.BPE())
    if is_gpt:
        theirs.normalizer = normalizers.BertNormalizer(lowercase=True)
        theirs.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        keys = {"special_tokens": ["<unk>"], "end_of_word_suffix": "</w>"}
    else:
        theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        keys = {"initial_alphabet": pre_tokenizers.ByteLevel.alphabet()}
    theirs.train_from_iterator(PROSE, trainers.BpeTrainer(vocab_size=500, **keys))
    model = json.loads(theirs.to_str())["model"]
    pieces = model["vocab"]
    if not is_gpt:
        pieces[TEXT_END] = len(pieces)
    directory.mkdir(exist_ok=True)
    (directory / names[0]).write_text(json.dumps(pieces))
    lines = ["#version: 0.2", *map(" ".join, model["merges"]), ""]
    (directory / names[1]).write_text("\n".join(lines), encoding="utf-8")
    return directory

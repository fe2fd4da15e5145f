"""Vocabularies that other libraries train: SentencePiece models, and one like GPT-2's."""

import io

import sentencepiece
import tokenizers as library
from kits.texts import PROSE
from tokenizers import decoders, models, pre_tokenizers, trainers

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

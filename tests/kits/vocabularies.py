"""SentencePiece models that the library trains, opened by ours."""

import io

import sentencepiece
from kits.texts import PROSE

from bert_jax.tokenizers import tokenizer as tokenizers


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


def save_and_open(tmp_path, model: bytes) -> tokenizers.Tokenizer:
    path = tmp_path / "some.model"
    path.write_bytes(model)
    return tokenizers.from_file(path, True)

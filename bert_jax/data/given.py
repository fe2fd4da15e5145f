"""The vocabulary of others that a config names."""

from bert_jax import remote, staged, tokenizer
from bert_jax.tokenizer import Tokenizer


def given_vocabulary(config) -> Tokenizer:
    """Of the file at config.tokenizer.path, which may be an address. Raises BadInput, naming it so."""
    path = staged.file(config.tokenizer.path)
    with remote.naming(path, config.tokenizer.path):
        return tokenizer.given(path, config.tokenizer.lowercase)

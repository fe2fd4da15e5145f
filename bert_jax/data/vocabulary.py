"""The vocabulary of others that a config names."""

from collections.abc import Callable

from bert_jax.data import download
from bert_jax.storage import remote
from bert_jax.tokenizers import tokenizer
from bert_jax.tokenizers.special_tokens import SPECIAL, Vocabulary
from bert_jax.tokenizers.tokenizer import Tokenizer


def given_vocabulary(config) -> Tokenizer:
    """Of the file at config.tokenizer.path, which may be an address. Raises BadInput, naming it so."""
    path = download.file(config.tokenizer.path)
    with remote.naming(path, config.tokenizer.path):
        return tokenizer.given(path, config.tokenizer.lowercase)


def likely_vocabulary(config, tell: Callable[[str], None]) -> Vocabulary:
    """That of the store, or of the given tokenizer, where there is one; otherwise one of the size that is asked for."""
    if download.is_there(config.store):
        manifest = download.manifest(config.store)
        return Vocabulary(manifest["vocabulary"], **manifest["special"])
    if config.tokenizer.path and remote.exists(config.tokenizer.path):
        given = given_vocabulary(config)
        return Vocabulary(given.size, **given.special)
    if config.tokenizer.path:
        size = f"config.tokenizer.size={config.tokenizer.size}"
        tell(f"config.tokenizer.path={config.tokenizer.path}: not there, {size} instead")
    return Vocabulary(config.tokenizer.size, **{name: id for id, name in enumerate(SPECIAL)})

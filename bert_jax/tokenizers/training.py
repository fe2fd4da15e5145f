"""The keys of config.tokenizer that decide how a vocabulary is trained, besides its kind, size and case."""

from typing import NamedTuple

from bert_jax.checks import split_list
from bert_jax.tokenizers.special_tokens import SPECIAL


class Training(NamedTuple):
    """Keys of config.tokenizer, with their defaults."""

    normalization: str = "auto"
    split_digits: bool = False
    byte_fallback: bool = False
    # Rarer characters would fill a small vocabulary.
    coverage: float = 0.9999
    special: str = ",".join(SPECIAL)
    keep_accents: bool = False

    @property
    def special_pieces(self) -> list[str]:
        """The special tokens, by id."""
        return [SPECIAL[name] for name in split_list(self.special)]

    @property
    def special_ids(self) -> dict[str, int]:
        """{name: id} of the special tokens."""
        return {name: self.special_pieces.index(piece) for name, piece in SPECIAL.items()}


DEFAULTS = Training()


def of_config(settings) -> Training:
    """Returns the keys of config.tokenizer; a normalization that is the default of its kind is `auto`."""
    keys = Training(*map(settings.get, Training._fields))
    keys = keys._replace(special=",".join(split_list(keys.special)))
    usual = "identity" if settings.kind == "byte_bpe" else "nfkc"
    if keys.normalization == usual:
        keys = keys._replace(normalization="auto")
    return keys


def changes(settings) -> dict:
    """Returns {key: value} of the keys of config.tokenizer that differ from their defaults."""
    values = of_config(settings)._asdict().items()
    return dict(sorted(values - DEFAULTS._asdict().items()))

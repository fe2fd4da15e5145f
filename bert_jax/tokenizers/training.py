"""The keys of config.tokenizer that decide how a vocabulary is trained, besides its kind, size and case."""

from typing import NamedTuple

from bert_jax.tokenizers.special_tokens import SPECIAL

NORMALIZATION = {"unigram": "nfkc", "bpe": "nfkc", "byte_bpe": "identity"}  # the default of a kind


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
    def special_ids(self) -> dict[str, int]:
        """{name: id} of the special tokens, which are the first pieces."""
        order = self.order
        return {name: order.index(name) for name in SPECIAL}

    @property
    def special_pieces(self) -> list[str]:
        return [SPECIAL[name] for name in self.order]

    @property
    def order(self) -> list[str]:
        """The names of the special tokens, by id."""
        return [name.strip() for name in self.special.split(",")]


DEFAULTS = Training()


def of_config(settings) -> Training:
    """Returns the keys of config.tokenizer; a normalization that is the default of its kind is `auto`."""
    keys = Training(*(settings[key] for key in Training._fields))
    if keys.normalization == NORMALIZATION.get(settings.kind):
        keys = keys._replace(normalization="auto")
    return keys


def changes(settings) -> dict:
    """Returns {key: value} of the keys of config.tokenizer that differ from their defaults."""
    values = of_config(settings)._asdict()
    return {key: value for key, value in values.items() if value != getattr(DEFAULTS, key)}

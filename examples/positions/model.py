"""GPT-2 with relative positions instead of learned absolute ones, see attention.py."""

from positions import attention

from bert_jax.checks import check_keys, require
from bert_jax.models import gpt

DEFAULTS = {key: value for key, value in gpt.DEFAULTS.items() if key != "positions"} | {
    "relative": "skew",  # how the scores of distances are computed: gather or skew, see attention.py
    "distance": 128,  # keys that are farther away have the vector of this distance
    "absolute": False,  # whether each position has an embedding beside those of distances
    "relative_values": False,  # whether values have vectors of distances, too; with gather alone
}
RULES = attention.RULES
DECAY = attention.DECAY


def check(config):
    gpt.check(config)
    choices = {"model.relative": ("gather", "skew")}
    check_keys(config, choices=choices, at_least_one=["model.distance"])
    is_gathered = config.model.relative == "gather"
    hint = "expected False: only model.relative=gather has vectors of values"
    is_valid = is_gathered or not config.model.relative_values
    require(is_valid, "model.relative_values", config, hint)


class Relative(gpt.Gpt, kw_only=True):
    relative: str
    distance: int
    relative_values: bool
    attention_type = attention.Attention

    def make_attention(self, spec):
        return super().make_attention(
            spec,
            distance=self.distance,
            skewed=self.relative == "skew",
            has_values=self.relative_values,
        )


def make(config, vocabulary_size, **fields):
    positions = "learned" if config.model.absolute else "relative"
    return gpt.make(config, vocabulary_size, Relative, positions=positions, **fields)

"""The examples' configs, made small."""

from kits.paths import ROOT

from bert_jax import config as configs
from bert_jax import registry

registry.add_folders([str(ROOT / "examples")])


def load(name, *overrides):
    return configs.load(str(ROOT / "examples" / name), [*overrides])

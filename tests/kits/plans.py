"""Arguments of `bert-jax plan` for a small model, and a stand-in for the compiler."""

from kits.small import SMALL, overrides

from bert_jax.planning import compilation, hlo

MEMORY = hlo.Memory(arguments=10, temporaries=7, program=6, total=24)


def arguments(directory, *options, topology="v5e:2x2", **changes):
    keys = SMALL | {"store": directory / "store", "dtype": "auto", **changes}
    keys = [f"--config.{key}" for key in overrides(keys)]
    return ["plan", "--config", "demo", "--topology", topology, *keys, *map(str, options)]


def compile_nothing(*_):
    return compilation.Step(MEMORY, [["compute", 9]])

"""Arguments of `bert-jax plan` for a small model, and a stand-in for the compiler."""

import json
from pathlib import Path

from kits.small import SMALL, overrides, small_config

from bert_jax.planning import compilation, hlo

MEMORY = hlo.Memory(arguments=10, temporaries=7, program=6, total=24)


def arguments(directory, *options, topology="v5e:2x2", **changes):
    keys = SMALL | {"store": directory / "store", "dtype": "auto", **changes}
    keys = [f"--config.{key}" for key in overrides(keys)]
    return ["plan", "--config", "demo", "--topology", topology, *keys, *map(str, options)]


def write_phases(path: Path, **phases: dict) -> Path:
    """Writes a small config with these phases, {name: keys that differ from `main`}; returns its path."""
    config = small_config("dtype=auto").to_dict()
    main = config["phases"]["main"]
    config["phases"] = {name: main | keys for name, keys in phases.items()}
    config["phase_order"] = [*phases]
    path.write_text(json.dumps(config))
    return path


def compile_nothing(*_):
    return compilation.Step(MEMORY, [["compute", 9]])

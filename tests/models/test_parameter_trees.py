"""The parameters of each model are those of golden/parameter_trees.json: a checkpoint, an export and a rule of sharding
know them by path and shape. Every shipped config has such a tree.

python tests/models/test_parameter_trees.py        writes the file
"""

import json
from pathlib import Path

import jax
import pytest

from bert_jax import config as configs
from bert_jax.convert.names import by_path
from bert_jax.objectives import base
from bert_jax.tasks import base as tasks
from bert_jax.tokenizers.special_tokens import Vocabulary
from bert_jax.tokenizers.training import DEFAULTS

ROOT = Path(__file__).parents[2]
FILE = ROOT / "tests/golden/parameter_trees.json"
GOLDEN = "albert_base bert_base electra_base gpt gpt2_small modern_base roberta_base transformer_base".split()
OTHERS = sorted({path.stem for path in ROOT.glob("configs/[!_]*.py")} - {*GOLDEN, "base"})


def tree_of(name: str) -> dict[str, list[int]]:
    """Returns {path: shape} of a config's parameters; layers of a stack have one path, and beside it their number."""
    config = configs.load(name, ["dtype=float32"])
    tasks.take_filled(config, tasks.part_of(config, "task").assume(config))
    vocabulary = Vocabulary(config.tokenizer.size or 30_000, **DEFAULTS.special_ids)
    objective = base.make(config, vocabulary)
    shapes = tasks.make(config).shapes(configs.phases(config)[0], 1)
    tree = {}
    layers = {}
    for path, leaf in by_path(jax.eval_shape(objective.init, jax.random.key(0), shapes)).items():
        stack, _, rest = path.partition("blocks_")
        if rest:
            number, _, rest = rest.partition("/")
            layers[f"{stack}blocks"] = layers.get(f"{stack}blocks", set()) | {number}
            path = f"{stack}blocks_*/{rest}"
        tree[path] = list(leaf.shape)
    return tree | {stack: [len(numbers)] for stack, numbers in layers.items()}


@pytest.mark.parametrize("name", GOLDEN)
def test_parameters_have_their_paths_and_shapes(name):
    expected = json.loads(FILE.read_text())[name]
    assert tree_of(name) == expected


@pytest.mark.full
@pytest.mark.parametrize("name", OTHERS)
def test_every_config_builds_its_model(name):
    assert len(tree_of(name)) > 10


if __name__ == "__main__":
    trees = {name: tree_of(name) for name in GOLDEN}
    lines = []
    for name, tree in trees.items():
        rows = ",\n".join(f"    {json.dumps(path)}: {shape}" for path, shape in tree.items())
        lines.append(f"  {json.dumps(name)}: {{\n{rows}\n  }}")
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")

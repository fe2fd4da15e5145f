"""Parameter counts and state sizes of large models, in total and per device, without allocating them."""

import math
from functools import partial

import jax
import pytest
from kits import small

from bert_jax import config, optimizer, step
from bert_jax.layers import counts
from bert_jax.objectives import base
from bert_jax.parallel import mesh as meshes
from bert_jax.tokenizers.special_tokens import Vocabulary

VOCABULARY = Vocabulary(30522, pad=0, unk=100, cls=101, sep=102, mask=103)
# Without vocabulary padding, with both heads.
PARAMETERS = {"bert_large": 336_226_108, "bert_1b": 1_280_595_772}
STATE_BYTES = 12  # per parameter: itself and two moments in float32


def shapes_and_shardings(name: str, *mesh: str):
    resolved = config.load(name, ["dtype=float32", *mesh])
    objective = base.make(resolved, VOCABULARY)
    update = optimizer.make(resolved, lambda step: 1e-4, None)
    example = small.synthetic(1, 8, 1, VOCABULARY.size)
    shapes = jax.eval_shape(partial(step.init, objective, update, 1, example))
    return shapes, meshes.state(shapes, meshes.make_mesh(resolved))


@pytest.mark.parametrize("name", PARAMETERS)
@pytest.mark.parametrize("fsdp, tensor", [(8, 1), (4, 2)])
def test_a_device_holds_its_share_of_the_state(name, fsdp, tensor):
    shapes, shardings = shapes_and_shardings(name, f"mesh.fsdp={fsdp}", f"mesh.tensor={tensor}")
    assert counts.count(shapes.params, VOCABULARY.size) == PARAMETERS[name]
    leaves = zip(jax.tree.leaves(shapes), jax.tree.leaves(shardings), strict=True)
    sizes = [(x.size, math.prod(s.shard_shape(x.shape)), x.dtype.itemsize) for x, s in leaves]
    whole, part = (sum(size[n] * size[2] for size in sizes) for n in range(2))
    # The tolerances cover small arrays and the padding of the vocabulary.
    assert whole == pytest.approx(STATE_BYTES * PARAMETERS[name], rel=0.001)
    assert part == pytest.approx(whole / (fsdp * tensor), rel=0.05)

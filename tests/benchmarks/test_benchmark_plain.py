"""benchmarks/plain.py: the plain step has the parameters and the FLOPs of ours, so their cycles are comparable."""

import jax
import pytest
from kits import small
from kits.small import VOCABULARY, small_config, small_objective, small_params

from benchmarks import plain
from bert_jax.layers import counts


@pytest.mark.parametrize("form", plain.FORMS)
def test_the_plain_step_has_our_parameters_and_flops(form):
    """Parameters without the rows that pad our vocabulary; FLOPs with as many words as there are rows."""
    keys = "model.dropout=0.0", "model.attention_dropout=0.0"
    objective, rows = small_objective(*keys), small.synthetic(16, 32, 5, 256)
    ours = jax.eval_shape(lambda: small_params(objective))
    initialize, _ = plain.make(small_config(*keys), VOCABULARY.size, form)
    size = sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(initialize).params))
    assert size == counts.count(ours, VOCABULARY.size)
    initialize, _ = plain.make(small_config(*keys), 256, form)
    theirs = jax.eval_shape(initialize)
    random = {"dropout": jax.random.key(0)}

    def loss(params, rows):
        return theirs.apply_fn({"params": params}, rows, rngs=random)

    flops = [
        counts.products(jax.make_jaxpr(jax.grad(each))(params, rows).jaxpr)
        for each, params in ((loss, theirs.params), (small.loss_of(objective), ours))
    ]
    assert flops[0] == pytest.approx(flops[1], rel=0.01)

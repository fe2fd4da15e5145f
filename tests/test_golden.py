"""Our BERT, ALBERT and ModernBERT, their losses, gradients and optimizer compared with another implementation
(golden/make_bert.py)."""

import json
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kits import transformers_bert
from kits.small import rate_of
from kits.transformers_bert import within

from bert_jax import optimizer, step, step_guard
from bert_jax.convert.names import by_path
from bert_jax.objectives import base

CASES = ("tanh", "exact", "modern", "shared")


@pytest.fixture(scope="module")
def golden() -> dict:
    with np.load(Path(__file__).parent / "golden/bert.npz") as file:
        return dict(file)


def read_json(array) -> dict:
    return json.loads(str(array))


@pytest.mark.parametrize("part", [pytest.param("rows", marks=pytest.mark.full), "one"])
@pytest.mark.parametrize("case", CASES)
def test_outputs_losses_and_gradients_equal_transformers(golden, case, part):
    case = within(golden, f"{case}/")
    theirs = read_json(case["config"])
    expected = within(case, f"{part}/")
    batch = within(expected, "batch/")
    ours = transformers_bert.evaluate(
        transformers_bert.config_of(theirs),
        transformers_bert.vocabulary_of(theirs),
        transformers_bert.params_of(within(case, "before/")),
        transformers_bert.batch_of(batch),
    )
    differences = transformers_bert.differences(ours, expected, batch["attention_mask"] > 0)
    transformers_bert.check(differences, states=5e-6, gradients=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_ten_steps_equal_the_original_optimizer(golden, case):
    case = within(golden, f"{case}/")
    theirs = read_json(case["config"])
    batches = within(case, "steps/")
    config = transformers_bert.config_of(theirs)
    objective = base.make(config, transformers_bert.vocabulary_of(theirs))
    rate = rate_of("linear", **read_json(golden["schedule"]))
    update = optimizer.make(config, rate, None)
    params = jax.tree.map(jnp.asarray, transformers_bert.params_of(within(case, "before/")))
    state = step.State(jnp.int32(0), params, step_guard.guarded(jax.jit(update.init)(params)))
    train = partial(step.train, objective=objective, optimizer=update, seed=0)
    train = jax.jit(train)
    for number in range(len(batches["labels"])):
        batch = {name: array[number] for name, array in batches.items()}
        state, *_ = train(state, transformers_bert.batch_of(batch))
    expected = by_path(transformers_bert.params_of(within(case, "after/")))
    ours = by_path(state.params)
    distances = {name: np.abs(ours[name] - array).max() for name, array in expected.items()}
    worst = max(distances, key=distances.get)
    print(f"{distances[worst]:.1e}  {worst}")
    assert distances[worst] < 1e-6

"""Ids that the model does not have are refused, not clamped: a lookup would take another row for them."""

import numpy as np
import pytest
from kits.small import VOCABULARY, small_batch, small_config

from bert_jax.data.batch import check_ids, shapes, structs, synthetic
from bert_jax.errors import BadInput
from bert_jax.step import real_token_share

LIMITS = {
    "tokens": 200,
    "segments": 2,
    "positions": 32,
    "masked_positions": 32,
    "masked_targets": 200,
    "cls_positions": 32,
    "targets": 3,
}


@pytest.fixture(scope="module")
def config():
    labels = "task.name=classification", "objective.name=classifier", "task.labels=a,b,c"
    return small_config(*labels)


@pytest.mark.parametrize("name", LIMITS)
def test_an_id_out_of_range_is_refused(config, name):
    batch = small_batch() | {"targets": np.full(16, 2, np.int32), "label_weights": np.ones(16)}
    check_ids(config, VOCABULARY.size, batch)
    for number in (-1, LIMITS[name]):
        array = batch[name].copy()
        array.flat[-1] = number
        with pytest.raises(BadInput, match=f"{name} has .*{LIMITS[name] - 1}"):
            check_ids(config, VOCABULARY.size, batch | {name: array})


def test_targets_of_several_labels_and_numbers_are_no_ids(config):
    weights = np.ones(16, np.float32)
    for shape in ((16, 3), (16,)):
        batch = small_batch() | {"targets": np.full(shape, 7, np.float32), "label_weights": weights}
        check_ids(config, VOCABULARY.size, batch)


def test_labels_without_weight_and_models_without_tables_have_no_limit(config):
    weights = np.zeros(16, np.float32)
    batch = small_batch() | {"targets": np.full(16, -100, np.int32), "label_weights": weights}
    check_ids(config, VOCABULARY.size, batch)
    for name in ("modernbert", "roberta"):
        keys = small_config(f"model.name={name}", "task.pair_task=none")
        check_ids(keys, VOCABULARY.size, batch | {"segments": np.full((16, 32), 7, np.int32)})
    with pytest.raises(BadInput, match="positions has"):
        check_ids(keys, VOCABULARY.size, batch | {"positions": np.full((16, 32), 32, np.int32)})


def test_random_batches_have_ids_in_the_ranges_of_a_task():
    leaves = structs({"tokens": (64, 9), "relations own_targets": (64,)})
    arrays = synthetic(leaves, VOCABULARY.size, {"relations": 3})
    assert set(arrays["relations"].tolist()) == {0, 1, 2}
    config = small_config()
    check_ids(config, VOCABULARY.size, arrays, {"relations": 3})
    with pytest.raises(BadInput, match="relations"):
        check_ids(config, VOCABULARY.size, arrays, {"relations": 2})


@pytest.mark.parametrize("name, limit", [("target_tokens", 200), ("target_positions", 48)])
def test_a_second_sequence_has_ids_positions_and_real_tokens_of_its_own(config, name, limit):
    """It is longer than the first one."""
    target = structs({"target_tokens target_positions target_sequence_ids": (16, 48)})
    arrays = synthetic(shapes(16, 32) | target, VOCABULARY.size)
    assert len(set(arrays["target_tokens"].flat)) > 100
    assert (arrays["target_positions"] == np.arange(48)).all()
    check_ids(config, VOCABULARY.size, arrays)
    arrays[name][-1, -1] = limit
    with pytest.raises(BadInput, match=f"{name} has .*{limit - 1}"):
        check_ids(config, VOCABULARY.size, arrays)
    arrays["target_sequence_ids"][:, 40:] = 0
    assert real_token_share(arrays) == (16 * 72, 16 * 80)

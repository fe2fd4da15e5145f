"""Recommended runs: published sizes and limits, and existing configs."""

import numpy as np
import pytest

from bert_jax import config as configs
from bert_jax.data import recommendation


def test_the_published_corpus_gets_the_published_run():
    """3.3 billion words: BERT-large, a million steps of 256 rows."""
    run = recommendation.choose_run(3_300_000_000)
    assert (run["size"], run["steps"], run["rows"]) == ("large", 1_000_000, 256)


def test_more_text_never_gives_a_smaller_model_or_a_shorter_run():
    runs = [recommendation.choose_run(int(tokens)) for tokens in np.geomspace(1000, 1e11, 200)]
    sizes = [list(recommendation.SIZES).index(run["size"]) for run in runs]
    rows = [run["rows"] for run in runs]
    assert sizes == sorted(sizes) and set(sizes) == set(range(6))
    assert rows == sorted(rows) and {32, 256} <= set(rows)
    seen = [run["steps"] * run["rows"] for run in runs]
    assert all(after >= 0.9 * before for before, after in zip(seen, seen[1:], strict=False))
    assert max(run["steps"] for run in runs) == 1_000_000
    assert all(run["passes"] < 42 for run in runs if run["steps"] > 10)


@pytest.mark.parametrize("size", recommendation.SIZES)
def test_recommended_configs_have_their_size_and_length(size):
    """They have the size's shape, two phases, and the corpus, filter and tokenizer of base."""
    config = configs.find(f"bert_{size}")
    assert (config.model.layers, config.model.width) == recommendation.SIZES[size]
    assert recommendation.text_overrides(config) == {}
    keys = recommendation.run_overrides({"size": size, "steps": 12_345, "rows": 64})
    config = configs.load(f"bert_{size}", [f"{key}={value}" for key, value in keys.items()])
    assert configs.total_steps(config) == 12_345
    assert [phase.length for phase in configs.phases(config)] == [128, 512]

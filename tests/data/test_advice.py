"""What is recommended: published sizes and limits, and configs that exist."""

import numpy as np
import pytest

from bert_jax import config as configs
from bert_jax.data.reports import advice


def test_the_published_corpus_gets_the_published_run():
    """3.3 billion words: BERT-large, a million steps of 256 rows."""
    run = advice.run(3_300_000_000)
    assert (run.size, run.steps, run.rows) == ("large", 1_000_000, 256)


def test_ten_tokens_a_parameter():
    needed = 10 * 12 * 12 * 768**2
    assert [advice.run(tokens).size for tokens in (needed - 1, needed)] == ["medium", "base"]


def test_more_text_is_never_a_smaller_model_or_a_shorter_run():
    runs = [advice.run(int(tokens)) for tokens in np.geomspace(1000, 1e11, 200)]
    sizes = [list(advice.SIZES).index(run.size) for run in runs]
    assert sizes == sorted(sizes) and set(sizes) == set(range(6))
    rows = [run.rows for run in runs]
    assert rows == sorted(rows) and {32, 256} <= set(rows)
    seen = [run.steps * run.rows for run in runs]
    assert all(after >= 0.9 * before for before, after in zip(seen, seen[1:], strict=False))
    assert max(run.steps for run in runs) == 1_000_000
    assert all(run.passes <= 40 for run in runs if run.steps > 10)
    assert all(run.passes > 36 for run in runs if 100 <= run.steps < 1_000_000)


def test_parameters_are_those_of_the_encoder():
    """As published for BERT-base and BERT-large without their embeddings, biases and layer norms."""
    assert advice.parameters(12, 768) == 84_934_656
    assert advice.parameters(24, 1024) == 301_989_888


@pytest.mark.parametrize("size", advice.SIZES)
def test_recommended_configs(size):
    """Of this shape, with the two phases; and nothing of corpus, filter or tokenizer is other than base's."""
    name = f"bert_{size}"
    config = configs.find(name)
    assert (config.model.layers, config.model.width) == advice.SIZES[size]
    assert advice.of_store(config) == {}
    overrides = [f"{key}={value}" for key, value in advice.of_run(size, 12_345, 64).items()]
    config = configs.load(name, overrides)
    assert configs.total_steps(config) == 12_345
    assert [phase.length for phase in configs.phases(config)] == [128, 512]


def test_keys_of_the_store_read_back():
    changes = ["corpus.weights=(3,1)", "corpus.source=a b,c", "filter.line_stops=True"]
    changes += ["filter.line_symbols=0.5", "corpus.workers=3", "tokenizer.size=300"]
    config = configs.load("demo", changes)
    keys = [f"{key}={value}" for key, value in advice.of_store(config).items()]
    again = configs.load("bert_tiny", keys)
    assert set(configs.differences(config, again)).isdisjoint(
        {"corpus.weights", "corpus.source", "filter.line_stops", "filter.line_symbols"}
        | {"tokenizer.size"}
    )
    assert not any("workers" in key for key in keys)

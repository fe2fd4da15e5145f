"""Recommended runs: published sizes and limits, and existing configs."""

import numpy as np
import pytest
from kits.corpora import config_of, make_text

from bert_jax import config as configs
from bert_jax.data import prepare as preparing
from bert_jax.data import recommendation


def test_the_published_corpus_gets_the_published_run():
    """3.3 billion words: BERT-large, a million steps of 256 rows."""
    run = recommendation.choose_run(3_300_000_000, 166.4)
    assert (run["size"], run["steps"], run["rows"]) == ("large", 1_000_000, 256)


def test_more_text_never_gives_a_smaller_model_or_a_shorter_run():
    runs = [recommendation.choose_run(int(tokens), 128) for tokens in np.geomspace(1000, 1e11, 200)]
    sizes = [list(recommendation.SIZES).index(run["size"]) for run in runs]
    rows = [run["rows"] for run in runs]
    assert sizes == sorted(sizes) and set(sizes) == set(range(6))
    assert rows == sorted(rows) and {32, 256} <= set(rows)
    seen = [run["steps"] * run["rows"] for run in runs]
    assert all(after >= 0.9 * before for before, after in zip(seen, seen[1:], strict=False))
    assert max(run["steps"] for run in runs) == 1_000_000
    assert all(run["passes"] < 42 for run in runs if run["steps"] > 10)


@pytest.mark.parametrize("name", ["bert_base", "my_corpus", "demo", "bert_1b", "modern_small"])
@pytest.mark.parametrize("tokens", [10**6, 10**7, 10**9, 10**11])
def test_the_changes_make_the_recommended_run_of_a_config(name, tokens):
    """They keep its phases and their lengths; afterwards nothing is left to change."""
    keys = ["log.every=70", "checkpoint.every=70"] * (name == "demo")
    before = configs.load(name, keys)
    run = recommendation.recommend(before, tokens, name == "demo")
    changes = [f"{key}={value}" for key, value in run["changes"].items()]
    after = configs.load(name, [*keys, *changes])
    assert (after.model.layers, after.model.width) == recommendation.SIZES[run["size"]]
    old, new = before.model, after.model
    assert old.feed_forward * new.width == new.feed_forward * old.width
    assert configs.total_steps(after) == run["steps"]
    assert {phase.batch for phase in configs.phases(after)} == {run["rows"]}
    lengths = [[(phase.name, phase.length) for phase in configs.phases(c)] for c in (before, after)]
    assert lengths[0] == lengths[1] and after.corpus == before.corpus
    assert recommendation.recommend(after, tokens, name == "demo")["changes"] == {}


def test_a_finished_store_is_recommended_for_the_config_that_asks(tmp_path):
    """Not for the one that prepared it: both may train on it."""
    keys = {"demo": [], "deeper": ["model.layers=3"]}
    reports = {
        name: preparing.prepare(config_of(tmp_path, make_text(60), *more), print)
        for name, more in keys.items()
    }
    changes = {name: report["recommendation"]["changes"] for name, report in reports.items()}
    assert "model.layers" not in changes["demo"] and changes["deeper"]["model.layers"] == 2

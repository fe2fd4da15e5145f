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


@pytest.mark.parametrize("name", ["bert_base", "my_corpus", "demo", "bert_1b"])
@pytest.mark.parametrize("tokens", [10**6, 10**7, 10**9, 10**11])
def test_the_changes_make_the_recommended_run_of_a_config(name, tokens):
    """They keep its phases and their lengths; afterwards nothing is left to change."""
    keys = ["log.every=70", "checkpoint.every=70"] * (name == "demo")
    before = configs.load(name, keys)
    run = recommendation.recommend(before, tokens, name == "demo")
    changes = [f"{key}={value}" for key, value in run["changes"].items()]
    after = configs.load(name, [*keys, *changes])
    assert (after.model.layers, after.model.width) == recommendation.SIZES[run["size"]]
    assert len({each.model.feed_forward / each.model.width for each in (before, after)}) == 1
    assert configs.total_steps(after) == run["steps"]
    assert {phase.batch for phase in configs.phases(after)} == {run["rows"]}
    lengths = [[(phase.name, phase.length) for phase in configs.phases(c)] for c in (before, after)]
    assert lengths[0] == lengths[1] and after.corpus == before.corpus
    assert recommendation.recommend(after, tokens, name == "demo")["changes"] == {}


def test_a_modernbert_keeps_its_own_run():
    """5 billion tokens by its config, batches that differ between phases, and its rate."""
    run = recommendation.recommend(configs.load("modern_small"), 10**9, short_documents=True)
    assert run["changes"] == {} and run["passes"] == pytest.approx(5, rel=0.01)
    assert "recommended" not in next(recommendation.describe(run, "modern_small", []))


def test_a_finished_store_is_recommended_for_the_config_that_asks(tmp_path):
    """Not for the one that prepared it: both may train on it."""

    def changes(*keys):
        report = preparing.prepare(config_of(tmp_path, make_text(60), *keys), print)
        return report["recommendation"]["changes"]

    assert "model.layers" not in changes() and changes("model.layers=3")["model.layers"] == 2

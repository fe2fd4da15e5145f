"""Recommended runs: sizes and steps by budget and text, and existing configs."""

import json
import re

import numpy as np
import pytest
from kits.small import write_corpus

from bert_jax import cli
from bert_jax import config as configs
from bert_jax.commands import prepare
from bert_jax.data.preparation import recommendation
from bert_jax.layers import network

RECIPES = [configs.load(name).model for name, *_ in recommendation.RECIPES["bert"]]
ORDER = {(model.layers, model.width): number for number, model in enumerate(RECIPES)}


def recommend(name="my_corpus", tokens=10**7, speed=10**12, short=False, overrides=(), **keys):
    """Returns the runs for a text of this many tokens, on a machine of `speed` FLOPs a second."""
    config = configs.load(name, overrides)
    report = {
        "train": {"tokens": tokens, "documents": tokens // 500 + 1},
        "single_sentence_share": 0.3 * short,
    }

    def time_step(after) -> float | None:
        configs.check(after)
        weights = 12 * after.model.layers * after.model.width**2
        phases = configs.phases(after)
        return speed and sum(6 * weights * each.length * each.batch for each in phases) / speed

    return recommendation.recommend(config, report, time_step, **keys)


def size(run) -> int:
    return ORDER[run["layers"], run["width"]]


def test_the_published_corpus_gets_the_published_run_where_steps_have_no_time():
    """3.3 billion words: BERT-large, a million steps of 256 rows."""
    (run,) = recommend("bert_base", 3_300_000_000, speed=None)
    assert (run["layers"], run["steps"], run["minutes"]) == (24, 1_000_000, None)
    keys = {key for key in run["changes"] if not key.startswith("model.")}
    assert keys <= {"log.every", "evaluate.every", "checkpoint.every"}


@pytest.mark.parametrize("speed", [2e9, 1e11, 1e14, 1e17])
def test_more_text_or_time_never_gives_a_smaller_model(speed):
    before = [0, 0, 0]
    for tokens in np.geomspace(1000, 1e11, 9):
        runs = recommend(tokens=int(tokens), speed=speed)
        changes = [str(run["changes"]) for run in runs]
        assert len({*changes}) == len(runs) and runs[0]["minutes"] == 10
        assert len(runs) == 3 or runs[-1]["passes"] > 35 or runs[-1]["steps"] in (10, 1_000_000)
        sizes = [size(run) for run in runs]
        sizes += [sizes[-1]] * (3 - len(runs))
        assert sizes == sorted(sizes)
        assert all(now >= old for now, old in zip(sizes, before, strict=True))
        before = sizes
        for run in runs:
            assert run["takes"] <= run["minutes"] or run["steps"] == 10
            assert run["passes"] <= 40 or run["steps"] == 10
            weights = 12 * run["layers"] * run["width"] ** 2
            seen = run["passes"] * tokens
            assert size(run) == 0 or tokens >= 10 * weights and seen > 18 * weights
    assert before[0] == 6 or speed < 1e17


@pytest.mark.parametrize(
    "name",
    ["bert_base", "bert_base_packed", "my_corpus", "demo", "bert_1b", "gpt_demo", "gpt2_small"],
)
@pytest.mark.parametrize("tokens, speed", [(10**6, 1e10), (10**8, 1e11), (10**10, 1e15)])
def test_the_changes_make_the_recommended_run_of_a_config(name, tokens, speed):
    """They keep its phases; afterwards nothing is left to change, and no position is untrained."""
    keys = ["log.every=70", "checkpoint.every=70"] * (name == "demo")
    before = configs.load(name, keys)
    is_short = name in ("demo", "bert_base_packed")
    for index, run in enumerate(recommend(name, tokens, speed, is_short, keys)):
        changes = [f"{key}={value}" for key, value in run["changes"].items()]
        after = configs.load(name, [*keys, *changes])
        assert (after.model.layers, after.model.width) == (run["layers"], run["width"])
        assert len({each.model.feed_forward / each.model.width for each in (before, after)}) == 1
        assert configs.total_steps(after) == run["steps"]
        shares = [
            [phase.stop / configs.total_steps(c) for phase in configs.phases(c)]
            for c in (before, after)
        ]
        assert np.allclose(*shares, atol=0.05)
        assert after.phase_order == before.phase_order and after.corpus == before.corpus
        assert network.unused_positions(after) == []
        assert after.evaluate.every == after.checkpoint.every <= max(5000, run["steps"])
        assert after.schedule.warmup < run["steps"] / 2
        if is_short:
            assert after.task.get("pair_task", "none") == "none"
        again = recommend(name, tokens, speed, is_short, [*keys, *changes])[index]
        assert again["changes"] == {}


@pytest.mark.parametrize(
    "name, keys", [("modern_small", []), ("bert_base", ["init_from=x"]), ("transformer_base", [])]
)
def test_models_without_a_recipe_and_started_ones_keep_their_own_run(name, keys):
    (run,) = recommend(name, 10**9, overrides=keys)
    assert run["changes"] == {} and run["minutes"] is None
    assert run["steps"] == configs.total_steps(configs.load(name))
    (started,) = recommend("bert_base", is_run=True)
    assert started["changes"] == {}


def test_modern_small_sees_five_billion_tokens():
    assert recommend("modern_small", 10**9)[0]["passes"] == pytest.approx(5, rel=0.01)


def test_rows_end_with_short_documents():
    """So 40 passes over them take more rows than their tokens fill."""
    rows = [recommend(tokens=tokens, short=True)[-1]["steps"] for tokens in (10**5, 10**6)]
    assert rows[1] > 5 * rows[0]


def test_the_first_run_has_the_recipe_that_leaves_frequencies_soonest():
    """With what to expect of it, if it has the steps. Pairs are left out where the recipe has none."""
    runs = recommend(tokens=10**8, speed=2e11)
    pairs = [run["changes"].get("task.pair_task", "nsp") for run in runs]
    assert [run["width"] for run in runs] == [128, 192, 256] and pairs == ["nsp", "none", "nsp"]
    assert runs[0]["reached"]
    assert not any(run["reached"] for run in runs[1:] + recommend(tokens=1000))


@pytest.mark.parametrize("name", ["demo", "gpt_demo"])
def test_the_report_has_the_commands_of_its_runs(tmp_path, monkeypatch, capsys, name):
    """A finished store gets those of the config that asks, not of the one that prepared it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(prepare, "time_step", lambda *_: 0.07)
    write_corpus(tmp_path / "it's a corpus.txt", documents=60)
    keys = ["--config.corpus.source=it's a corpus.txt", "--config.corpus.heldout=0.2"]
    keys += ["--config.tokenizer.size=300", "--config.model.layers=3", "--config.store=s"]
    assert cli.main(["prepare", "--config", name, *keys, "--json", "r.json"]) == 0
    text = capsys.readouterr().out
    runs = json.loads((tmp_path / "r.json").read_text())["recommended"]
    assert [run["minutes"] for run in runs] == [10]
    assert re.search(r"^\d+ seconds of 10 minutes", text, re.MULTILINE) and "expect" not in text
    for run in runs:
        rest, overrides = cli.split_overrides(run["arguments"])
        config = configs.load(rest[1], overrides)
        assert config.model.layers == 2 and config.store == "s"
        assert config.corpus.source == "it's a corpus.txt"
    assert f"bert-jax pretrain --config {name} --workdir runs/{name}_10min" in text
    monkeypatch.setattr(prepare, "time_step", lambda *_: None)
    assert cli.main(["prepare", "--config", name, *keys, "--json", "r.json"]) == 0
    (run,) = json.loads((tmp_path / "r.json").read_text())["recommended"]
    assert run["minutes"] is None and "--config.model.layers=2" in run["arguments"]

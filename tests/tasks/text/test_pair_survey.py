"""Checks before step 0: every warning names its key, and a run that cannot work is refused."""

import re

import numpy as np
import pytest
from kits import pairs
from kits.small import small_config
from kits.stores import make_store, random_documents

from bert_jax import config as configs
from bert_jax.errors import BadInput
from bert_jax.tasks.text import pair_rows

WORDS = np.ones(1000, bool)  # every token starts a word
DOCUMENTS = random_documents(600, sentences=30)
TRAIN, HELDOUT = DOCUMENTS[:500], DOCUMENTS[500:]


@pytest.fixture
def check(tmp_path):
    """check(train, heldout, key=value...) -> the lines about a store of these documents."""

    def lines(train, heldout, *changes):
        store = make_store(tmp_path / "store", train, heldout)
        config = small_config(*changes)
        survey = pairs.dataset(store, pairs.spec(config, "main")).survey(configs.phases(config)[0])
        return [*survey.warnings, survey.text]

    return lines


def test_a_good_start_has_no_warning(check):
    assert len(check(TRAIN, HELDOUT)) == 1, "only the summary"


def test_statistics_match_all_rows(tmp_path):
    store = make_store(tmp_path / "store", TRAIN, HELDOUT)
    spec = pairs.spec(small_config(), "main")
    survey = pairs.dataset(store, spec).survey(spec.phase_keys)
    rows = sum(map(len, pair_rows.build(store.splits["train"], spec.rules, 0)))
    steps = rows // spec.batch
    batches = list(pairs.train_batches(store, WORDS, spec, 0, steps))
    real = np.concatenate([batch["sequence_ids"].sum(1) for batch in batches])
    labels = np.concatenate([batch["pair_labels"][:, 0] for batch in batches])
    assert survey.real_token_share == pytest.approx(real.mean() / 32, abs=0.005)
    stated = int(re.search(r"(\d+)% of pairs", survey.text)[1])
    assert stated == pytest.approx(100 * labels.mean(), abs=1)


LONG = random_documents(300, sentences=9, words=200), random_documents(20, seed=1)
SINGLE = [document[:1] for document in random_documents(4000, seed=1)] + TRAIN[:50], HELDOUT
SHORT = [[[5, 6, 7]], [[8, 9], [10, 11]]] * 50, [[[12, 13]], [[14]]]
SPLIT = TRAIN, HELDOUT


@pytest.mark.parametrize(
    ("documents", "change", "named"),
    [
        (LONG, "phases.main.length=32", "phases.main.length=32"),
        (SINGLE, "phases.main.length=20", "task.pair_task=none"),
        (SHORT, "task.pair_task=none", "phases.main.length"),
        (SPLIT, "phases.main.max_predictions=2", "phases.main.max_predictions=2"),
    ],
)
def test_text_that_does_not_fit_the_config_is_a_warning(check, documents, change, named):
    warning, *_ = check(*documents, change)
    assert named in warning


def test_pairs_of_one_label_stop_the_run(check):
    with pytest.raises(BadInput, match="task.pair_task=none"):
        check([document[:1] for document in TRAIN], [[[7, 8, 9]], [[9, 8]]])

"""The times and the utilization in metrics.jsonl, compared with independent clocks and counts."""

import json
import time
from typing import NamedTuple

import numpy as np
import pytest
from kits import runs

from bert_jax import train
from bert_jax.parallel import chips
from bert_jax.tasks import feed

LATE, SECONDS = 7, 0.4  # the index of a step, and the delay of its batch
PEAK = 1e9  # peak FLOP/s of a device in these tests


class Delayed(NamedTuple):
    lines: dict  # {step: training line}
    flops: float  # of a step
    real: list  # for each training batch bool[B, L], whether each token is real


@pytest.fixture(scope="module")
def delayed(finished, tmp_path_factory):
    """A run on devices with a known peak, with a delayed batch."""
    real, batches = [], feed.StoreFeed.train

    def late(*arguments):
        for number, arrays in enumerate(batches(*arguments)):
            if number == LATE:
                time.sleep(SECONDS)
            real.append(arrays["sequence_ids"] > 0)
            yield arrays

    workdir = tmp_path_factory.mktemp("delayed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(feed.StoreFeed, "train", late)
        patch.setitem(chips.PEAK_FLOPS, "cpu", PEAK)
        assert train.pretrain(runs.load(finished[0]), workdir) == 0
    known = json.loads((workdir / "run.json").read_text())
    lines = {line["step"]: line for line in runs.lines(workdir) if line["split"] == "train"}
    return Delayed(lines, known["phases"]["main"]["flops_per_step"], real)


@pytest.mark.slow
def test_a_wait_for_input_is_reported_at_its_step(delayed):
    waited = {step: line["input_seconds"] for step, line in delayed.lines.items()}
    assert waited[10] >= SECONDS > waited[20]


@pytest.mark.slow
def test_real_token_share_is_that_of_the_batches(delayed):
    assert len(delayed.real) == 20
    for step, line in delayed.lines.items():
        assert line["real_token_share"] == pytest.approx(
            np.mean(delayed.real[step - 5 : step]), rel=1e-6
        )


@pytest.mark.slow
def test_utilization_is_model_flops_over_the_peak(delayed):
    """FLOPs by the formula of BERT: tests/models/test_counts.py."""
    for line in delayed.lines.values():
        share = 5 * delayed.flops / line["seconds"] / (8 * PEAK)
        assert line["model_flops_utilization"] == pytest.approx(share, rel=1e-6)

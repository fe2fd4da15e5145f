"""The times and the utilization in metrics.jsonl, compared with independent clocks and counts."""

import json
import time

import numpy as np
import pytest
from kits import runs

from bert_jax import train
from bert_jax.parallel import chips
from bert_jax.tasks import feed

LATE, SECONDS = 7, 0.4  # the index of a step, and the delay of its batch
PEAK = 1e9  # peak FLOP/s of a device in these tests


@pytest.mark.full
def test_times_and_shares_are_those_of_each_line(finished, tmp_path, monkeypatch):
    """A wait for input, the real tokens of the batches, and FLOPs (tests/layers/test_counts.py) over a known peak."""
    real, batches = [], feed.StoreFeed.train

    def late(*arguments):
        for number, arrays in enumerate(batches(*arguments)):
            if number == LATE:
                time.sleep(SECONDS)
            real.append(arrays["sequence_ids"] > 0)
            yield arrays

    monkeypatch.setattr(feed.StoreFeed, "train", late)
    monkeypatch.setitem(chips.BY_KIND, "cpu", chips.CARDS["l4"]._replace(flops=PEAK))
    assert train.pretrain(runs.load(finished[0]), tmp_path) == 0
    flops = json.loads((tmp_path / "run.json").read_text())["phases"]["main"]["flops_per_step"]
    lines = {line["step"]: line for line in runs.lines(tmp_path) if line["split"] == "train"}
    assert lines[10]["input_seconds"] >= SECONDS > lines[20]["input_seconds"]
    assert len(real) == 20
    for step, line in lines.items():
        share = np.mean(real[step - 5 : step])
        assert line["real_token_share"] == pytest.approx(share, rel=1e-6)
        utilization = 5 * flops / line["seconds"] / (8 * PEAK)
        assert line["model_flops_utilization"] == pytest.approx(utilization, rel=1e-6)

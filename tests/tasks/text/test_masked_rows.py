"""Masks by phase: the share of predicted tokens is that of the phase, and in held-out rows that of the run."""

import numpy as np
import pytest
from kits import rows as kit
from kits.stores import make_store, random_documents

from bert_jax.data import stream
from bert_jax.tasks.text import packed_documents


@pytest.mark.parametrize("rate", [0.3, 0.15, 0.05, 0.0])
def test_each_phase_has_its_own_mask_rate(tmp_path, rate):
    train, heldout = random_documents(40, sentences=300), random_documents(9, 1, sentences=300)
    store = make_store(tmp_path / "store", train, heldout, vocabulary=kit.V)
    config = kit.settings(1024, mask_rate=0.2, heldout_mask_rate=0.1)
    dataset = packed_documents.make(config, store, kit.WORD_STARTS)
    phase = kit.phase(1024, 16, 400, mask_rate=rate)

    def predicted(batches) -> float:
        sums = np.zeros(2)
        for batch in batches:
            real = (batch["sequence_ids"] > 0) * batch["row_weights"][:, None]
            sums += batch["masked_weights"].sum(), real.sum()
        return sums[0] / sums[1]

    trained = predicted(kit.batches(dataset, phase, 0, 9))
    assert trained == pytest.approx(rate or 0.2, rel=0.005)
    heldout = predicted(stream.EvaluationBatches(dataset, phase, "heldout", 500, 16))
    assert heldout == pytest.approx(0.1, rel=0.005)

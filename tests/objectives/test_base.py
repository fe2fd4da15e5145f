"""Optional functions in the file of an objective."""

import sys
from types import ModuleType

from kits.small import small_batch, small_config, small_objective

from bert_jax.objectives import base


def test_an_objective_may_have_reference_losses(monkeypatch):
    config = small_config()
    info = {"vocabulary": {"size": 1000}, "unigram_entropy": 5.0}
    assert "6.91" in base.reference_losses(config, info)
    for pair_task, is_paired in (("sop", True), ("none", False)):
        paired = small_config(f"task.pair_task={pair_task}")
        assert ("pair loss 0.69" in base.reference_losses(paired, info)) == is_paired
    mine = ModuleType("mine")
    mine.DEFAULTS, mine.check, mine.make = {}, None, None
    monkeypatch.setitem(sys.modules, "my_code.objective", mine)
    config = config.copy_and_resolve_references()
    config.objective.name = "my_code.objective"
    assert base.reference_losses(config, info) == ""


def test_the_rows_of_a_task_decide_whether_there_are_pairs():
    """A change of the task needs no key of the objective."""
    for name, terms in (("sentence_pairs", {"mlm", "nsp"}), ("full_sentences", {"mlm"})):
        objective = small_objective(f"task.name={name}")
        assert set(objective.weights(small_batch())) == terms

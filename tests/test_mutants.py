"""Every mutant is one line that stands in the product, and is caught by the file that it names."""

import pytest
from kits.places import ROOT
from mutants import MUTANTS, copy_product, run, run_tests


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_of_this_product(mutant):
    text = (ROOT / "bert_jax" / mutant.file).read_text(encoding="utf-8")
    assert text.count(mutant.right) == 1 and mutant.wrong != mutant.right
    assert (ROOT / "tests" / mutant.test).is_file()


@pytest.mark.full
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_it_is_caught(mutant, tmp_path):
    assert run(mutant, tmp_path) == "caught"


@pytest.mark.full
@pytest.mark.parametrize("test", sorted({mutant.test for mutant in MUTANTS}))
def test_the_copy_that_mutants_are_made_in_passes(test, tmp_path):
    copy_product(tmp_path)
    assert run_tests(tmp_path, test) == 0

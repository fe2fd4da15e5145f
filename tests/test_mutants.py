"""Every mutant replaces a line that is in the package once, and the test file that it names fails on it."""

import pytest
from kits.paths import ROOT
from mutants import MUTANTS, copy_checkout, run, run_tests


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_changes_one_place_of_the_package(mutant):
    text = (ROOT / mutant.path).read_text(encoding="utf-8")
    assert text.count(mutant.right) == 1 and mutant.wrong != mutant.right
    assert (ROOT / "tests" / mutant.test).is_file()


@pytest.mark.full
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_caught(mutant, tmp_path):
    assert run(mutant, tmp_path) == "caught"


@pytest.mark.full
@pytest.mark.parametrize("test", sorted({mutant.test for mutant in MUTANTS}))
def test_the_unchanged_copy_passes(test, tmp_path):
    copy_checkout(tmp_path)
    assert run_tests(tmp_path, test) == 0

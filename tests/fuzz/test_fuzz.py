"""Malformed inputs: a few attempts at every target, the same in each run; --full makes more."""

import shutil

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st

from fuzz import configs, data, models, runs, texts
from fuzz.attempts import check
from fuzz.world import World

TARGETS = [configs.as_json, configs.override, texts.text, texts.vocabulary]
TARGETS += [data.store, data.saved_batches, runs.workdir, models.external_model]


@pytest.fixture(scope="session")
def world(finished, tmp_path_factory) -> World:
    return World(tmp_path_factory.mktemp("fuzz") / "world", *finished)


@pytest.mark.full
@pytest.mark.parametrize("target", TARGETS)
def test_malformed_inputs(target, world, tmp_path, draw, request):
    directory = tmp_path / "attempt"

    @hypothesis.seed(int(draw.integers(1 << 31)))
    @hypothesis.settings(
        max_examples=20 if request.config.getoption("--full") else 3,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @hypothesis.given(st.data())
    def attempt(drawn) -> None:
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        check(target(drawn.draw, world, directory), directory, world.path)

    attempt()

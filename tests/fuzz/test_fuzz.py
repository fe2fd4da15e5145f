"""A short pass through every door that is the same each time. More tries: `bash launch/faults.sh -k door`."""

import shutil

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st

from fuzz import configs, data, models, runs, texts
from fuzz.attempts import check
from fuzz.world import World

DOORS = [configs.as_json, configs.override, texts.text, texts.vocabulary]
DOORS += [data.opened_store, data.saved_batches, runs.workdir, models.imported]


@pytest.fixture(scope="session")
def world(finished, tmp_path_factory) -> World:
    return World(tmp_path_factory.mktemp("fuzz") / "world", *finished)


@pytest.mark.slow
@pytest.mark.parametrize("door", DOORS)
def test_door(door, world, tmp_path, draw, request):
    place = tmp_path / "try"

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
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        check(door(drawn.draw, world, place), place, world.path)

    attempt()

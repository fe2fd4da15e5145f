"""One world for all faults."""

import pytest

from faults.world import World


@pytest.fixture(scope="session")
def world(tmp_path_factory) -> World:
    return World(tmp_path_factory.mktemp("faults"))


@pytest.fixture
def run(tmp_path):
    """Where the run of a try is."""
    return tmp_path / "run"

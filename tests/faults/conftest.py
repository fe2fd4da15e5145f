"""Fixtures of the fault tests."""

import pytest

from faults.world import World


@pytest.fixture(scope="session")
def world(tmp_path_factory) -> World:
    return World(tmp_path_factory.mktemp("faults"))


@pytest.fixture
def run(tmp_path):
    """The workdir of one try."""
    return tmp_path / "run"

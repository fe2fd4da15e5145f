"""Paths of the checkout, and of real text and tasks next to it, which are not part of the repository."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data"


def data(*parts: str) -> Path:
    """Returns the path of a file or directory of ../shared/data; skips the test if it does not exist."""
    path = DATA.joinpath(*parts)
    if not path.exists():
        pytest.skip("no ../shared/data")
    return path

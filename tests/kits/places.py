"""Where the checkout is, and real text and tasks beside it, which are not part of it."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data"


def data(*parts: str) -> Path:
    """A file or directory of ../shared/data; skips the test where it is not there."""
    path = DATA.joinpath(*parts)
    if not path.exists():
        pytest.skip("no ../shared/data")
    return path

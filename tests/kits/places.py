"""Where the checkout is, and real text and tasks beside it, which are not part of it."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data"

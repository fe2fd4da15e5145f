"""One file a run: executed Python, read as documents."""

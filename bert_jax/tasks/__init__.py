"""Tasks: where the rows of a run come from, one task per file."""

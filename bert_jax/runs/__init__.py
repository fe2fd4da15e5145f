"""A run around its steps: workdir, lock, report, metrics, deadlines, what the process sets up."""

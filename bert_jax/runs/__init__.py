"""A run around its steps: workdir, lock, reports, metrics, signals, deadlines, setup of the process."""

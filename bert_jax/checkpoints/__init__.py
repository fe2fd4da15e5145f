"""Saving and restoring the state of a run, by Orbax; which checkpoints are what was saved."""

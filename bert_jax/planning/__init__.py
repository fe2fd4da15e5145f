"""The parts of `plan`."""

"""Faults from outside, at random: what a run must survive. `bash launch/faults.sh --help`."""

"""Faults from outside, at random: what a run must survive, tried and counted. `bash launch/faults.sh --help`."""

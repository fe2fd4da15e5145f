"""Fuzz tests of every input: each ends in one line and exit code 2 with no file changed, or in a success that an oracle
confirms. It never ends in a traceback or a hang.

A target is a function (draw, world, directory) -> Attempt. It draws choices from hypothesis, writes its input into the
empty directory, and returns the command to run on it and the oracle that checks a success.
"""

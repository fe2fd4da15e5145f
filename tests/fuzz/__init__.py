"""Malformed inputs at every door: each ends in one line and exit code 2 with nothing touched, or in a success that an
oracle of that door confirms; never in a traceback, never in a hang.

A door is a function (draw, world, place) -> Attempt: it draws what to do from hypothesis, writes its input into the
empty directory `place`, and says which command to run on it and how a success is judged.
"""

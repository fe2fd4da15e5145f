"""Melodies that repeat a motif, as text to train on: each number of `builtin:numbers` is the seed of one."""

import zlib

import numpy as np

NOTES = range(60, 72)  # of a motif, MIDI numbers
SIZES = range(5, 10)  # of a motif, in notes
OCTAVES = -12, 0, 12  # by one of which each repetition is transposed
LINES = 5


def melody(number: str) -> str:
    """Returns the melody of a number in words: a motif, and its repetitions an octave lower, as it is, or higher.

    A line is the motif, or a repetition: notes, separated by blanks. All choices are random and equally probable.
    """
    draw = np.random.Generator(np.random.Philox(zlib.crc32(number.encode())))
    size = draw.choice(SIZES)
    motif = draw.choice(NOTES, size)
    octaves = [0, *draw.choice(OCTAVES, LINES - 1)]
    return "\n".join(" ".join(map(str, motif + octave)) for octave in octaves)

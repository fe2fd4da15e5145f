"""Writes the splits of Bach's chorales as text, note by note as the Music Transformer reads them (arXiv:1809.04281):

    python examples/positions/chorales.py jsb-chorales-16th.json chorales

writes chorales/train.txt, valid.txt, and test.txt. The file is that of github.com/czhuang/JSB-Chorales-dataset, also
compressed (.xz): {split: [chorale]}, a chorale being a list of sixteenths with the notes of four voices, MIDI numbers.
"""

import json
import lzma
import sys
from pathlib import Path

VOICES = 4
REST = "r"


def text_of(chorale: list[list[int]]) -> str:
    """Returns a line for each sixteenth: soprano, alto, tenor and bass. Where notes are missing (in 128 of 92,536
    sixteenths), the file does not say of which voice, and the rests are last."""
    lines = []
    for notes in chorale:
        words = [str(int(note)) for note in notes]  # the file has 62 and 62.0
        words += [REST] * (VOICES - len(words))
        lines.append(" ".join(words))
    return "\n".join(lines)


def main(source: str, directory: str):
    """Writes a file for each split."""
    path = Path(source)
    data = path.read_bytes()
    if path.suffix == ".xz":
        data = lzma.decompress(data)
    Path(directory).mkdir(parents=True, exist_ok=True)
    for split, chorales in json.loads(data).items():
        text = "\n\n".join(map(text_of, chorales))
        (Path(directory) / f"{split}.txt").write_text(text + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])

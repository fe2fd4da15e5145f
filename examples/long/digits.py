"""The images of handwritten digits that scikit-learn brings, as rows of pixels for image.py.

An image is a text: the word `image`, which begins a row, and its 64 pixels line by line, words from 0 to 16. Rows have
the pixels in the order in which the network generates them. The files of data/ say which of the 1,797 images a split
has.
"""

import json
from pathlib import Path

import numpy as np
from long import image

from bert_jax.checks import check_keys, require
from bert_jax.data import batch
from bert_jax.data.dataset import Dataset
from bert_jax.errors import BadInput
from bert_jax.tasks.supervised import examples, texts
from bert_jax.tasks.supervised.examples import Encoded, Example

DEFAULTS = examples.UNLABELLED | {
    "data": str(Path(__file__).parent / "data"),
    "train": "train.json",
    "dev": ("dev.json",),
    "epochs": 0.0,
}
BEGIN = "image"


def check(config):
    check_keys(config, shares=["task.heldout", "task.warmup"], not_negative=["task.epochs"])
    require("image_height" in config.model, "model.name", config, "expected long.image")
    pixels = image.grid_of(config).pixels
    for name, phase in config.phases.items():
        is_row = phase.length == 1 + pixels
        hint = f"expected {1 + pixels}, a begin token and the pixels"
        require(is_row, f"phases.{name}.length", config, hint)


def read_images(path) -> np.ndarray:
    """Returns int64[images, 8, 8], the pixels of the images that a file of data/ names. Raises BadInput without
    scikit-learn."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        hint = "needs scikit-learn: pip install -c constraints.txt -e '.[finetune]'"
        raise BadInput(f"config.task.name='long.digits': {hint}") from None
    numbers = json.loads(Path(path).read_text())
    return load_digits().images[numbers["first"] : numbers["stop"]].astype(int)


def text_of(pixels) -> str:
    """Returns the text of the first pixels of an image."""
    return " ".join([BEGIN, *map(str, pixels)])


def load(config, path) -> list[Example]:
    images = read_images(path)
    return [
        Example(f"{path}:{number}", [text_of(pixels.ravel())], None)
        for number, pixels in enumerate(images, 1)
    ]


def parse(config, lines: list[str]) -> list[Example]:
    return texts.parse(lines, 1)


def encode(config, tokenizer, chosen: list[Example], names: list[str]) -> Encoded:
    """Converts images to ids. Raises BadInput for one of another size, or with a word of several pieces."""
    encoded = examples.encode_texts(tokenizer, [example.texts for example in chosen])
    expected = 1 + image.grid_of(config).pixels
    for example, [ids] in zip(chosen, encoded, strict=True):
        if len(ids) != expected:
            raise BadInput(f"{example.location}: {len(ids)} pieces, expected {expected}")
    return Encoded(encoded, {})


def make(config, store=None):
    splits = examples.split_names(config)

    def shapes(phase, rows):
        weights = batch.structs({"next_weights": (rows, phase.length)})
        return batch.shapes(rows, phase.length) | weights

    def rows(phase, split, epoch):
        """Returns int64[R, L]: the places of the tokens of each row in those of the split."""
        places = 1 + image.grid_of(config).order()
        order = np.concatenate([[0], places])  # the begin token, then the pixels
        firsts = np.arange(0, len(store.splits[split].tokens), phase.length)
        return firsts[:, None] + order

    def make_batch(phase, split, rows, keys):
        from bert_jax.data import assemble

        tokens = assemble.as_ids(assemble.look_up(store.splits[split].path / "tokens.npy", rows))
        zeros = 0 * tokens
        positions = zeros + np.arange(phase.length, dtype=np.int32)
        return {
            "tokens": tokens,
            "segments": zeros,
            "positions": positions,
            "sequence_ids": zeros + 1,
            "cls_positions": zeros[:, :1],
            "next_weights": assemble.as_weights(positions < phase.length - 1),
        }

    return Dataset(
        shapes=shapes,
        splits=splits,
        rows=rows,
        make=make_batch,
        sequences=lambda phase: 1,
    )


EXAMPLES = examples.Examples(load=load, parse=parse, encode=encode)

"""The Image Transformer with local attention in two dimensions (arXiv:1802.05751): a causal decoder of pixels.

The image is cut into blocks of queries. They are generated one after the other, from left to right and line by line,
and so are the pixels of each. A pixel is predicted from those before it in its memory block: the block of queries, and
pixels around it, `above` lines and `beside` columns on both sides. With a block as large as the image, it sees all
pixels before it.

A row is a begin token and the pixels in that order, so place 0 has the begin token, which all queries see, place t has
pixel t - 1, and the state there predicts pixel t.
"""

from typing import NamedTuple

import numpy as np
from long import attention, model

from bert_jax.checks import check_keys, require
from bert_jax.models import gpt

DEFAULTS = gpt.DEFAULTS | {
    "max_length": 65,  # one more than pixels
    "image_height": 8,
    "image_width": 8,
    "query_height": 4,  # size of a block of queries, which divides that of the image
    "query_width": 4,
    "above": 2,  # lines above a block of queries that it reads, too
    "beside": 2,  # columns on both sides of it
}


class Grid(NamedTuple):
    """The blocks of an image; see above."""

    image_height: int
    image_width: int
    query_height: int
    query_width: int
    above: int
    beside: int

    @property
    def pixels(self) -> int:
        return self.image_height * self.image_width

    def order(self) -> np.ndarray:
        """Returns int64[pixels]: the number, line by line, of the pixel that is generated first, second, ..."""
        numbers = np.arange(self.pixels)
        lines = self.image_height // self.query_height
        shape = lines, self.query_height, self.image_width // self.query_width, self.query_width
        return numbers.reshape(shape).transpose(0, 2, 1, 3).ravel()

    def memory(self) -> np.ndarray:
        """Returns int64[N, M]: the places of the begin token and of the pixels of each memory block, -1 for those
        outside of the image."""
        places = np.empty(self.pixels, int)
        places[self.order()] = 1 + np.arange(self.pixels)
        places = places.reshape(self.image_height, self.image_width)
        around = (self.above, 0), (self.beside, self.beside)
        places = np.pad(places, around, constant_values=-1)
        height = self.above + self.query_height
        width = self.query_width + 2 * self.beside
        result = []
        for line in range(0, self.image_height, self.query_height):
            for column in range(0, self.image_width, self.query_width):
                block = places[line : line + height, column : column + width]
                result.append([0, *block.ravel()])
        return np.array(result)

    def blocks(self, length: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the memory int64[N, M] and whether it is seen, bool[N, Q, M], of rows of L places, as
        attention.make_blocks reads them. Queries behind those that predict pixels see nothing."""
        size = self.query_height * self.query_width
        count = -(-length // size)
        memory = self.memory()[:count]
        missing = count - len(memory)
        memory = np.pad(memory, ((0, missing), (0, 0)), constant_values=-1)
        queries = np.arange(count * size).reshape(count, size)
        return memory, memory[:, None] <= queries[..., None]


def grid_of(config) -> Grid:
    return Grid(*(config.model[name] for name in Grid._fields))


def check(config):
    gpt.check(config)
    grid = grid_of(config)
    sizes = "image_height", "image_width", "query_height", "query_width"
    least = [f"model.{name}" for name in sizes]
    check_keys(config, at_least_one=least, not_negative=["model.above", "model.beside"])
    for name in ("height", "width"):
        divides = config.model[f"image_{name}"] % config.model[f"query_{name}"] == 0
        hint = f"does not divide model.image_{name}={config.model[f'image_{name}']}"
        require(divides, f"model.query_{name}", config, hint)
    hint = f"expected {grid.pixels + 1}, a begin token and the pixels"
    require(config.model.max_length == grid.pixels + 1, "model.max_length", config, hint)


class Image(model.Decoder, kw_only=True):
    """Rows of pixels to hidden states."""

    grid: Grid
    attention_type = attention.BlockAttention

    def make_inputs(self, mask, positions):
        ids = mask.query_ids
        blocks = attention.make_blocks(*self.grid.blocks(ids.shape[1]), ids)
        return [inputs._replace(extra=blocks) for inputs in super().make_inputs(mask, positions)]


def make(config, vocabulary_size, **fields):
    return gpt.make(config, vocabulary_size, Image, grid=grid_of(config), **fields)

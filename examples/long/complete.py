"""Draws images whose lower halves a run of config_digits.py has completed, as SVG:

    python examples/long/complete.py runs/long_digits completions.svg

The columns are images that it was not trained on: at the top as they are, then their upper halves, then completions.
"""

import sys
from pathlib import Path

import numpy as np

import bert_jax

IMAGES = 12
SAMPLES = 4
STEP = 9  # pixels from an image to the next one
BLACK = 16


def complete(directory: str) -> np.ndarray:
    """Returns int64[2 + SAMPLES, IMAGES, 8, 8], the lines of the picture."""
    model = bert_jax.load(directory)
    # The folder above this one is known to Python once the run is open.
    from long import digits, image

    order = image.grid_of(model.loaded.config).order()
    images = digits.read_images(Path(__file__).parent / "data/dev.json")
    images = images[:IMAGES].reshape(IMAGES, -1)
    half = len(order) // 2
    prompts = [digits.text_of(pixels[order[:half]]) for pixels in images]
    result = np.zeros((2 + SAMPLES, *images.shape), int)
    result[0] = images
    result[1:, :, order[:half]] = images[:, order[:half]]
    texts = model.generate(prompts, tokens=half, samples=SAMPLES, seed=1)
    for number, completions in enumerate(texts):
        for sample, text in enumerate(completions, 2):
            # A word that is no number, which is improbable, is drawn as 0.
            values = [int(word) if word.isdigit() else 0 for word in text.split()]
            result[sample, number, order[half:][: len(values)]] = values
    return result.reshape(*result.shape[:2], 8, 8)


def draw(lines: np.ndarray) -> str:
    """Returns the SVG of images int[lines, columns, 8, 8] with values from 0, white, to 16, black."""
    paths = []
    for value in range(1, BLACK + 1):
        squares = ""
        for line, column, y, x in np.argwhere(lines == value):
            squares += f"M{STEP * column + x} {STEP * line + y}h1v1h-1z"
        paths.append(f'<path fill-opacity="{value / BLACK:.2f}" d="{squares}"/>')
    height, width = (STEP * count - 1 for count in lines.shape[:2])
    size = f'viewBox="0 0 {width} {height}" width="{8 * width}" height="{8 * height}"'
    back = f'<rect width="{width}" height="{height}" fill="#fff"/>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{back}{"".join(paths)}</svg>\n'


if __name__ == "__main__":
    run, output = sys.argv[1:]
    Path(output).write_text(draw(complete(run)))

"""Reads published models: options.json and the HDF5 file of weights, as allenai/bilm-tf and AllenNLP write them."""

import json
from pathlib import Path

import h5py
import numpy as np

from bert_jax.errors import BadInput

CELL = "RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"


def read_options(path: Path | str) -> dict:
    """Returns the keys of model.py that an options.json decides."""
    options = json.loads(Path(path).read_text())
    lstm = options["lstm"]
    characters = options["char_cnn"]
    widths, numbers = zip(*characters["filters"], strict=True)
    if widths != (*range(1, len(widths) + 1),):
        raise BadInput(f"{path}: filters of widths {widths}, expected 1, 2, ...")
    if lstm["cell_clip"] != lstm["proj_clip"]:
        raise BadInput(f"{path}: cell_clip and proj_clip differ")
    return {
        "filters": numbers,
        "character_width": characters["embedding"]["dim"],
        "highways": characters["n_highway"],
        "activation": characters["activation"],
        "layers": lstm["n_layers"],
        "cell": lstm["dim"],
        "width": lstm["projection_dim"],
        "clip": float(lstm["cell_clip"]),
        "residual": lstm["use_skip_connections"],
    }


def read_weights(path: Path | str, model: dict) -> dict:
    """Returns the parameters of model.py's network from an HDF5 file. model: what `read_options` returns."""
    with h5py.File(path) as file:

        def array(name: str) -> np.ndarray:
            return np.asarray(file[name], np.float32)

        def dense(kernel: str, bias: str) -> dict:
            values = array(kernel)
            return {"kernel": values.reshape(-1, values.shape[-1]), "bias": array(bias)}

        # The file has no row for the padding of rows of words.
        table = np.pad(array("char_embed"), [(1, 0), (0, 0)])
        filters = {"characters": table}
        for number in range(len(model["filters"])):
            names = f"CNN/W_cnn_{number}", f"CNN/b_cnn_{number}"
            filters[f"width_{number + 1}"] = dense(*names)
        words = {"filters": filters, "out": dense("CNN_proj/W_proj", "CNN_proj/b_proj")}
        for number in range(model["highways"]):
            words[f"highway_{number}"] = {
                part: dense(*(f"CNN_high_{number}/{letter}_{part}" for letter in "Wb"))
                for part in ("carry", "transform")
            }
        params = {"words": words}
        for direction, name in enumerate(("forward", "backward")):
            for layer in range(model["layers"]):
                cell = CELL.format(direction=direction, layer=layer)
                params[f"{name}_{layer}"] = {
                    "kernel": array(f"{cell}/W_0"),
                    "bias": array(f"{cell}/B"),
                    "projection": array(f"{cell}/W_P_0"),
                }
    return params

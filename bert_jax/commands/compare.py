"""`compare`: compares settings, tensors, vocabularies and outputs of two models of any formats."""

from itertools import zip_longest
from pathlib import Path

import jax
import numpy as np

from bert_jax import cli
from bert_jax import config as configs
from bert_jax.convert import load_model, names
from bert_jax.objectives import base, fill_mask
from bert_jax.parallel import mesh as meshes

PAIRS, LENGTH = 4, 64  # pairs of rows of the test batch; the second row of each is half padding
SHOWN = 10  # tensors listed in the text

OPTIONS = [
    cli.place("--a", "directory of a model", **cli.REQUIRED),
    cli.place("--b", "directory of a model", **cli.REQUIRED),
    cli.AS_JSON,
]


def run(options, overrides) -> int:
    cli.refuse_overrides(overrides)
    values = compare(options.a, options.b)
    return cli.show(options, values, describe(values))


def compare(a: Path, b: Path) -> dict:
    """Returns the differences of two models. Rows that pad a vocabulary are ignored.

    The result is {settings: {key: [a, b]}, shapes: {tensor: [a, b]} of those that differ or that one model lacks
    (None), tensors: [as `difference`, the largest first], vocabulary, outputs: {name: as `difference`}}. Outputs are
    computed in float32, and are empty if the vocabularies have different sizes.
    """
    one, two = (load_model.open_model(directory, ["dtype=float32"]) for directory in (a, b))
    left, right = tensors(one), tensors(two)
    names = left | right
    shapes = {n: [getattr(side.get(n), "shape", None) for side in (left, right)] for n in names}
    differences = [
        {"tensor": name, **difference(left[name], right[name])}
        for name in names
        if shapes[name][0] == shapes[name][1]
    ]
    differences.sort(key=lambda entry: (-entry["difference"], entry["tensor"]))
    settings = configs.differences(one.config, two.config)
    pieces = one.tokenizer.pieces, two.tokenizer.pieces
    return {
        "a": str(a),
        "b": str(b),
        "settings": {k: v for k, v in settings.items() if k.startswith(("model.", "objective."))},
        "shapes": {name: pair for name, pair in shapes.items() if pair[0] != pair[1]},
        "tensors": differences,
        "vocabulary": {
            "sizes": [*map(len, pieces)],
            "pieces": sum(x != y for x, y in zip_longest(*pieces)),
            "same_rules": one.tokenizer.fingerprint == two.tokenizer.fingerprint,
        },
        "outputs": outputs(one, two) if len(pieces[0]) == len(pieces[1]) else {},
    }


def tensors(model) -> dict[str, np.ndarray]:
    """Returns {path: array} of the parameters, without padding and without untrained parts."""
    padded = {item.path for item in names.parameters(model.config.model.layers) if item.padded}
    params = names.drop_parts(model.params, load_model.untrained_parts(model))
    arrays = {}
    for path, leaf in jax.tree.leaves_with_path(params):
        name = meshes.path_name(path)
        arrays[name] = np.asarray(leaf)[: model.vocabulary.size if name in padded else None]
    return arrays


def difference(a: np.ndarray, b: np.ndarray) -> dict:
    """Returns {difference, bitwise} of two arrays of the same shape.

    difference is the maximum over the elements. It is infinite if only one of two elements is NaN, or if they are
    different infinities. Two NaN, or twice the same infinity, do not differ.
    """
    equal = (a == b) | (np.isnan(a) & np.isnan(b))
    distances = np.abs(np.subtract(a, b, where=~equal, out=np.zeros(a.shape), dtype=np.float64))
    largest = float(np.nan_to_num(distances, nan=np.inf).max(initial=0.0))
    return {"difference": largest, "bitwise": a.dtype == b.dtype and a.tobytes() == b.tobytes()}


def outputs(one, two) -> dict:
    """Returns {name: difference of that output} on a random batch, half of whose rows are half padding."""
    vocabulary, draw = one.vocabulary, np.random.default_rng(0)
    length = min(LENGTH, one.config.model.max_length, two.config.model.max_length)
    texts = [draw.integers(vocabulary.size, size=n - 2) for n in (length, length // 2) * PAIRS]
    for ids in texts:
        ids[::8] = vocabulary.mask
    predictions = max(np.count_nonzero(ids == vocabulary.mask) for ids in texts)
    batch = fill_mask.make_batch(texts, 2 * PAIRS, length, predictions, vocabulary)
    left, right = (trained_outputs(model, batch) for model in (one, two))
    return {
        name: difference(left[name], right[name]) for name in sorted(left.keys() & right.keys())
    }


def trained_outputs(model, batch) -> dict[str, np.ndarray]:
    """Returns the outputs of a model on a batch, without padding and without those of untrained heads."""
    heads = getattr(base.module_of(model.config), "HEADS", {})
    untrained = {*load_model.untrained_parts(model)}
    arrays = jax.jit(model.objective.outputs)(model.params, batch)
    trained = {name for name in arrays if not untrained & heads.get(name, set())}
    return {name: np.asarray(arrays[name])[..., : model.vocabulary.size] for name in trained}


def describe(values: dict) -> str:
    """Returns text: a line for each difference, and the ten tensors that differ most."""
    lines = [f"{side}: {values[side]}" for side in "ab"]
    pairs = values["settings"] | values["shapes"]
    lines += [f"{key}: {a} in a, {b} in b" for key, (a, b) in pairs.items()]
    vocabulary = values["vocabulary"]
    rules = "the same" if vocabulary["same_rules"] else "different"
    lines.append(
        f"vocabularies: {' and '.join(f'{size:,}' for size in vocabulary['sizes'])} pieces, of which"
        f" {vocabulary['pieces']:,} differ; tokenizer rules: {rules}"
    )
    for name, output in values["outputs"].items():
        lines.append(f"{name}: differ by up to {output['difference']:.3g}")
    differing = [entry for entry in values["tensors"] if not entry["bitwise"]]
    lines.append(f"{len(differing)} of {len(values['tensors'])} tensors of the same shape differ")
    lines += [f"  {entry['tensor']}: {entry['difference']:.3g}" for entry in differing[:SHOWN]]
    return "\n".join(lines)

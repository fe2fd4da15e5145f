"""`compare`: compares settings, tensors, vocabularies and outputs of two models of any formats."""

from itertools import zip_longest
from pathlib import Path

import numpy as np

from bert_jax import cli
from bert_jax import config as configs
from bert_jax.convert import load_model
from bert_jax.data.batch import synthetic
from bert_jax.inference import batches, differences
from bert_jax.layers import counts
from bert_jax.tasks import base as tasks

OPTIONS = [
    cli.place("--a", "directory of a model", **cli.REQUIRED),
    cli.place("--b", "directory of a model", **cli.REQUIRED),
    cli.AS_JSON,
]

PREFIXES = "model.", "objective.", "task.pair_task"  # of the settings that are compared


def run(options, overrides) -> int:
    cli.refuse_overrides(overrides)
    values = compare(options.a, options.b)
    return cli.show(options, values, describe(values))


def compare(a: Path, b: Path) -> dict:
    """Returns the differences of two models. Rows that pad a vocabulary are ignored.

    The result is {settings: {key: [a, b]}, shapes: {tensor: [a, b]} of those that differ or that one model lacks
    (None), tensors: [{tensor, difference, bitwise}, the largest difference first], vocabulary, outputs: {name:
    {difference, bitwise}}}. Outputs are computed in float32, and are empty if the vocabularies have different sizes.
    """
    one, two = (load_model.open_model(directory, ["dtype=float32"]) for directory in (a, b))
    settings = configs.differences(one.config, two.config)
    shapes, entries = differences.compare(tensors(one), tensors(two))
    pieces = one.tokenizer.pieces, two.tokenizer.pieces
    sizes = [*map(len, pieces)]
    return {
        "a": str(a),
        "b": str(b),
        "settings": {key: pair for key, pair in settings.items() if key.startswith(PREFIXES)},
        "shapes": shapes,
        "tensors": entries,
        "vocabulary": {
            "sizes": sizes,
            "pieces": sum(x != y for x, y in zip_longest(*pieces)),
            "same_rules": one.tokenizer.rules == two.tokenizer.rules,
        },
        "outputs": outputs(one, two) if sizes[0] == sizes[1] else {},
    }


def tensors(model) -> dict[str, np.ndarray]:
    """Returns {path: array} of the parameters, without padding and without untrained parts."""
    arrays = {}
    for path, array in load_model.trained(model).items():
        end = model.vocabulary.size if path.endswith(counts.PADDED) else None
        arrays[path] = np.asarray(array)[:end]
    return arrays


def outputs(one, two) -> dict:
    """Returns {name: difference of that output} on a random batch, for the outputs of the same shape that both models
    have trained."""
    longest = min(configs.longest_row(model.config) for model in (one, two))
    batch = batches.random_batch(longest, one.vocabulary)
    rows, length = batch["tokens"].shape
    for model in (one, two):
        # Arrays that only the model's own task has.
        dataset = tasks.make(model.config)
        size = model.vocabulary.size
        phase = configs.phases(model.config)[0]._replace(length=length)
        batch = synthetic(dataset.shapes(phase, rows), size, dataset.ranges(size)) | batch
    left = differences.outputs(one, batch)
    right = differences.outputs(two, batch)
    return {
        name: differences.difference(left[name], right[name])
        for name in sorted(left.keys() & right.keys())
        if left[name].shape == right[name].shape
    }


def describe(values: dict) -> str:
    """Returns text: a line for each difference, and the ten tensors that differ most."""
    lines = [f"{side}: {values[side]}" for side in "ab"]
    pairs = values["settings"] | values["shapes"]
    lines += [f"{key}: {a} in a, {b} in b" for key, (a, b) in pairs.items()]
    vocabulary = values["vocabulary"]
    a, b = vocabulary["sizes"]
    rules = "the same" if vocabulary["same_rules"] else "different"
    lines.append(
        f"vocabularies: {a:,} and {b:,} pieces, of which {vocabulary['pieces']:,} differ;"
        f" tokenizer rules: {rules}"
    )
    for name, output in values["outputs"].items():
        lines.append(f"{name}: differ by up to {output['difference']:.3g}")
    differing = [entry for entry in values["tensors"] if not entry["bitwise"]]
    lines.append(f"{len(differing)} of {len(values['tensors'])} tensors of the same shape differ")
    lines += [f"  {entry['tensor']}: {entry['difference']:.3g}" for entry in differing[:10]]
    return "\n".join(lines)

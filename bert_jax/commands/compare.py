"""Two models of any formats, side by side: settings, tensors, vocabularies, and what they make of the same batch."""

from itertools import zip_longest
from pathlib import Path

import jax
import numpy as np

from bert_jax import cli
from bert_jax import config as configs
from bert_jax.convert import load_model, names
from bert_jax.data import batch as batches
from bert_jax.parallel import mesh as meshes

PAIRS, LENGTH = 4, 64  # of rows, whose second is half padding
# Parts of names.py that they need.
HEADS = {"mlm_logits": {"mlm"}, "pair_logits": {"pooler", "pair"}}
SHOWN = 10  # tensors in the text

OPTIONS = [
    cli.option("--a", "directory of a model", type=cli.run_place, **cli.NEEDED),
    cli.option("--b", "directory of a model", type=cli.run_place, **cli.NEEDED),
    cli.AS_JSON,
]


def run(options, overrides) -> int:
    cli.refuse(overrides)
    values = compare(options.a, options.b)
    return cli.show(options, values, describe(values))


def compare(a: Path, b: Path) -> dict:
    """In what two models differ; nothing is said of the rows that pad a vocabulary.

    {settings: {key: [a, b]}, only_a, only_b: [tensor], shapes: {tensor: [a, b]}, tensors: [as `difference`], largest
    difference first, vocabulary, outputs: {name: as `difference`}}. Outputs are computed in
    float32, and left out where one vocabulary is larger.
    """
    one, two = (load_model.open_model(directory, ["dtype=float32"]) for directory in (a, b))
    ours, theirs = tensors(one), tensors(two)
    found, shapes = [], {}
    for name in ours:
        if name in theirs and ours[name].shape == theirs[name].shape:
            found.append({"tensor": name, **difference(ours[name], theirs[name])})
        elif name in theirs:
            shapes[name] = [list(side[name].shape) for side in (ours, theirs)]
    found.sort(key=lambda entry: (-entry["difference"], entry["tensor"]))
    settings = configs.differences(*map(configs.spelled_out, (one.config, two.config)))
    pieces = one.tokenizer.pieces, two.tokenizer.pieces
    return {
        "a": str(a),
        "b": str(b),
        "settings": {k: v for k, v in settings.items() if k.startswith(("model.", "objective."))},
        "only_a": [name for name in ours if name not in theirs],
        "only_b": [name for name in theirs if name not in ours],
        "shapes": shapes,
        "tensors": found,
        "vocabulary": {
            "sizes": [*map(len, pieces)],
            "pieces": sum(x != y for x, y in zip_longest(*pieces)),
            "same_rules": one.tokenizer.fingerprint == two.tokenizer.fingerprint,
        },
        "outputs": outputs(one, two) if len(pieces[0]) == len(pieces[1]) else {},
    }


def tensors(model) -> dict[str, np.ndarray]:
    """{path: array} of the parameters, without padding, and without the parts that only init has made."""
    table = {item.path: item for item in names.parameters(model.config.model.layers)}
    found = {}
    for path, leaf in jax.tree.leaves_with_path(model.params):
        name = meshes.path_name(path)
        item = table.get(name)
        if not item or item.part not in load_model.untrained_parts(model):
            rows = model.vocabulary.size if item and item.padded else None
            found[name] = np.asarray(leaf)[:rows]
    return found


def difference(a: np.ndarray, b: np.ndarray) -> dict:
    """{difference, bitwise} of arrays of one shape.

    difference is the largest of any element: infinite where one of two elements is NaN, or they are different
    infinities; two NaN, or twice the same infinity, do not differ.
    """
    equal = (a == b) | (np.isnan(a) & np.isnan(b))
    apart = np.abs(np.subtract(a, b, where=~equal, out=np.zeros(a.shape), dtype=np.float64))
    largest = float(np.nan_to_num(apart, nan=np.inf).max(initial=0.0))
    return {"difference": largest, "bitwise": a.dtype == b.dtype and a.tobytes() == b.tobytes()}


def outputs(one, two) -> dict:
    """{name: difference of that output}, on one made-up batch; half of its rows are half padding.

    For mlm_logits also same_best: the share of masked positions whose best piece is the same.
    """
    vocabulary, draw = one.vocabulary, np.random.default_rng(0)
    length = min(LENGTH, one.config.model.max_length, two.config.model.max_length)
    texts = [draw.integers(vocabulary.size, size=n - 2) for n in (length, length // 2) * PAIRS]
    for ids in texts:
        ids[::8] = vocabulary.mask
    predictions = max(np.count_nonzero(ids == vocabulary.mask) for ids in texts)
    batch = batches.of_texts(texts, batches.shapes(2 * PAIRS, length, predictions), vocabulary)
    ours, theirs = (jax.jit(model.objective.outputs)(model.params, batch) for model in (one, two))
    found, made_up = {}, {*load_model.untrained_parts(one), *load_model.untrained_parts(two)}
    for name in sorted(ours.keys() & theirs.keys()):
        if made_up & HEADS.get(name, set()):  # objectives of one's own have others
            continue
        a, b = (np.asarray(side[name])[..., : vocabulary.size] for side in (ours, theirs))
        found[name] = difference(a, b)
        if name == "mlm_logits":
            same = a.argmax(axis=-1) == b.argmax(axis=-1)
            found[name]["same_best"] = float(same.mean())
    return found


def describe(values: dict) -> str:
    """For people: what differs, a line each, and the ten tensors that differ most."""
    lines = [f"{side}: {values[side]}" for side in "ab"]
    pairs = values["settings"] | values["shapes"]
    lines += [f"{key}: {a} in a, {b} in b" for key, (a, b) in pairs.items()]
    lines += [f"{name}: in {side} alone" for side in "ab" for name in values[f"only_{side}"]]
    vocabulary = values["vocabulary"]
    rules = "the same" if vocabulary["same_rules"] else "another"
    lines.append(
        f"vocabularies: {' and '.join(f'{size:,}' for size in vocabulary['sizes'])} pieces, of which"
        f" {vocabulary['pieces']:,} differ; {rules} tokenizer"
    )
    for name, output in values["outputs"].items():
        best = f"; {output['same_best']:.2%} best pieces the same" if "same_best" in output else ""
        lines.append(f"{name}: differ by {output['difference']:.3g}{best}")
    differing = [entry for entry in values["tensors"] if not entry["bitwise"]]
    lines.append(f"{len(differing)} of {len(values['tensors'])} tensors of the same shape differ")
    lines += [f"  {entry['tensor']}: {entry['difference']:.3g}" for entry in differing[:SHOWN]]
    return "\n".join(lines)

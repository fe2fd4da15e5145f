"""Two models of any formats, side by side: settings, tensors, vocabularies, and what they make of the same batch."""

from itertools import zip_longest
from pathlib import Path

import jax
import numpy as np

from bert_jax import cli
from bert_jax import config as configs
from bert_jax.commands import load_model
from bert_jax.convert import names
from bert_jax.data import batch as batches
from bert_jax.parallel import mesh as meshes

ROWS, LENGTH, PREDICTIONS = 8, 64, 8
HEADS = {
    "mlm_logits": {"mlm"},
    "pair_logits": {"pooler", "pair"},
}  # the parts of names.py they need
SHOWN = 10  # tensors of a kind in the text


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
    difference first, bitwise: how many of them, vocabulary, outputs: {name: as `difference`}}. Outputs are computed in
    float32, for the pieces that both have, and left out where neither vocabulary begins with the other.
    """
    one, two = (load_model.open_model(directory, ["dtype=float32"]) for directory in (a, b))
    ours, theirs = tensors(one), tensors(two)
    both = [name for name in ours if name in theirs]
    shapes = {name: [list(side[name].shape) for side in (ours, theirs)] for name in both}
    alike = [name for name in both if ours[name].shape == theirs[name].shape]
    found = [{"tensor": name, **difference(ours[name], theirs[name])} for name in alike]
    found.sort(key=lambda entry: -entry["difference"])
    pieces = one.tokenizer.pieces, two.tokenizer.pieces
    shared = min(map(len, pieces))
    # Ids mean the same, or at least exist, in both; --add-words makes the longer of such a pair.
    fit = len(pieces[0]) == len(pieces[1]) or pieces[0][:shared] == pieces[1][:shared]
    return {
        "a": str(a),
        "b": str(b),
        "settings": settings(one.config, two.config),
        "only_a": [name for name in ours if name not in theirs],
        "only_b": [name for name in theirs if name not in ours],
        "shapes": {name: pair for name, pair in shapes.items() if pair[0] != pair[1]},
        "tensors": found,
        "bitwise": sum(entry["bitwise"] for entry in found),
        "vocabulary": vocabularies(one.tokenizer, two.tokenizer),
        "outputs": outputs(one, two, shared) if fit else {},
    }


def settings(a, b) -> dict:
    """{key: [a, b]} of the keys of model and objective that differ."""
    found = configs.differences(*map(configs.spelled_out, (a, b)))
    return {k: list(v) for k, v in found.items() if k.startswith(("model.", "objective."))}


def vocabularies(a, b) -> dict:
    """Sizes, the ids whose pieces differ, and whether all texts get the same ids."""
    pairs = zip_longest(a.pieces, b.pieces)
    return {
        "sizes": [a.size, b.size],
        "pieces": sum(one != two for one, two in pairs),
        "same_rules": a.fingerprint == b.fingerprint,
    }


def tensors(model) -> dict[str, np.ndarray]:
    """{path: array} of the parameters, without padding, and without the parts that only init has made."""
    table = {item.path: item for item in names.parameters(model.config.model.layers)}
    found = {}
    for path, leaf in jax.tree.leaves_with_path(model.params):
        name = meshes.path_name(path)
        item = table.get(name)
        if item and item.part in load_model.fresh(model):
            continue
        padded = item and item.padded
        found[name] = np.asarray(leaf)[: model.vocabulary.size if padded else None]
    return found


def difference(a: np.ndarray, b: np.ndarray) -> dict:
    """{difference, bitwise, not_finite: [a, b]} of arrays of one shape.

    difference is the largest of any element: infinite where only one of two elements is NaN or they are different
    infinities; two NaN, or twice the same infinity, do not differ.
    """
    equal = (a == b) | (np.isnan(a) & np.isnan(b))
    finite = np.isfinite(a) & np.isfinite(b)
    x, y = (np.where(finite, side, 0).astype(np.float64) for side in (a, b))
    apart = np.where(finite, np.abs(x - y), np.where(equal, 0.0, np.inf))
    return {
        "difference": float(apart.max(initial=0.0)),
        "bitwise": a.dtype == b.dtype and a.tobytes() == b.tobytes(),
        "not_finite": [int((~np.isfinite(side)).sum()) for side in (a, b)],
    }


# --- Outputs --------------------------------------------------------------------------------------


def outputs(one, two, size: int) -> dict:
    """{name: difference of that output}, on one made-up batch of the first `size` pieces.

    For mlm_logits also same_best: the share of masked positions whose best of these pieces is the same.
    """
    batch = make_batch(one, two, size)
    ours, theirs = (
        jax.tree.map(np.asarray, jax.jit(model.objective.outputs)(model.params, batch))
        for model in (one, two)
    )
    found = {}
    made_up = {*load_model.fresh(one), *load_model.fresh(two)}
    for name in sorted(set(ours) & set(theirs)):
        if made_up.intersection(HEADS.get(name, ())):
            continue
        pair = ours[name], theirs[name]
        if name == "mlm_logits":
            used = batch["masked_weights"] > 0
            pair = tuple(logits[used][:, :size] for logits in pair)
        if pair[0].shape != pair[1].shape:
            continue
        found[name] = difference(*pair)
        if name == "mlm_logits":
            best = [logits.argmax(axis=-1) for logits in pair]
            found[name]["same_best"] = float((best[0] == best[1]).mean())
    return found


def make_batch(one, two, size: int, seed: int = 0) -> dict:
    """Rows of random pieces, of different lengths, with masks and, where both models have them, two segments."""
    model, vocabulary = one.config.model, one.vocabulary
    length = min(LENGTH, model.positions, two.config.model.positions)
    predictions = min(PREDICTIONS, length // 4)
    batch = batches.synthetic(ROWS, length, predictions, size, seed)
    lengths = np.linspace(length, length // 2, ROWS).astype(np.int32)[:, None]
    real = np.arange(length) < lengths
    batch["masked_weights"] = (batch["masked_positions"] < lengths).astype(np.float32)
    batch["masked_positions"] = np.where(batch["masked_weights"], batch["masked_positions"], 0)
    batch["tokens"][:, 0] = vocabulary.cls
    for row, places in enumerate(batch["masked_positions"]):
        batch["tokens"][row, places[places > 0]] = vocabulary.mask
    batch["tokens"] = np.where(real, batch["tokens"], vocabulary.pad)
    batch["positions"] = np.where(real, batch["positions"], 0)
    batch["sequence_ids"] = real.astype(np.int32)
    if min(model.segments, two.config.model.segments) < 2:
        batch["segments"][:] = 0
    return batch


# --- For people -----------------------------------------------------------------------------------


def describe(values: dict) -> str:
    """What differs, a line each: the ten tensors that differ most, and all that are not finite."""
    lines = [f"a: {values['a']}", f"b: {values['b']}"]
    lines += [f"config.{key}: {a!r} in a, {b!r} in b" for key, (a, b) in values["settings"].items()]
    lines += first([f"{name}: only in a" for name in values["only_a"]])
    lines += first([f"{name}: only in b" for name in values["only_b"]])
    lines += first([f"{name}: {a} in a, {b} in b" for name, (a, b) in values["shapes"].items()])
    tensors = values["tensors"]
    lines.append(
        f"{values['bitwise']} of {len(tensors)} tensors of the same shape are bitwise equal"
    )
    for place, entry in enumerate(tensors):
        if (place < SHOWN and not entry["bitwise"]) or any(entry["not_finite"]):
            lines.append(f"  {show(entry)}  {entry['tensor']}")
    words = values["vocabulary"]
    a, b = words["sizes"]
    rules = "texts get the same ids" if words["same_rules"] else "texts may get different ids"
    lines.append(f"vocabulary: {a:,} pieces in a, {b:,} in b, {words['pieces']:,} differ; {rules}")
    for name, entry in values["outputs"].items():
        best = f"; the same best piece at {entry['same_best']:.1%}" if "same_best" in entry else ""
        lines.append(f"{name}: {show(entry)}{best}")
    if not values["outputs"]:
        lines.append("outputs: none that can be compared")
    return "\n".join(lines)


def first(lines: list[str]) -> list[str]:
    """The first ten, and how many more there are."""
    more = len(lines) - SHOWN
    return lines[:SHOWN] + ([f"and {more} more tensors"] if more > 0 else [])


def show(entry: dict) -> str:
    a, b = entry["not_finite"]
    bad = f" (NaN or infinite: {a} in a, {b} in b)" if a or b else ""
    return f"{entry['difference']:.3g}{bad}"

"""The door of models that others made: what comes in is what an independent reader of the files finds."""

import json
import struct
from pathlib import Path

import numpy as np
import outside
from hypothesis import strategies as st
from safetensors.numpy import load_file

from bert_jax.convert import names
from bert_jax.main import main
from fuzz.attempts import Attempt, captured
from fuzz.damage import change_file, changed_bytes, changed_json
from fuzz.data import files

WEIGHTS = "model.safetensors"


def imported(draw, world, place) -> Attempt:
    kind = draw(st.sampled_from(["huggingface", "huggingface", "google"]))
    source = outside.copy(world.path / kind, place / "source")
    if kind == "huggingface" and draw(st.booleans()):
        note = change_header(draw, source / WEIGHTS)
    else:
        path = draw(st.sampled_from(files(source)))
        note = f"{path.name}: {change_file(draw, path)}"
    run = place / "run"

    def oracle(code, out):
        return differing(source, kind, run, place / "exported")

    command = ["import", "--source", str(source), "--workdir", str(run), "--json", "-"]
    return Attempt([*command, "--config.dtype=float32"], oracle, f"{kind} {note}")


def change_header(draw, path: Path) -> str:
    """A safetensors file whose header says something else of the same data."""
    content = path.read_bytes()
    end = 8 + struct.unpack("<Q", content[:8])[0]
    header = json.dumps(changed_json(draw, json.loads(content[8:end]))).encode()
    if draw(st.integers(0, 3)) == 0:
        header = changed_bytes(draw, header)
    length = draw(st.sampled_from([len(header)] * 5 + [0, 2**63, 2**64 - 1, len(header) + 8]))
    path.write_bytes(struct.pack("<Q", length) + header + content[end:])
    return f"header {header[:1500]!r}"


def read(source: Path, kind: str) -> dict[str, np.ndarray]:
    """{our path: array} of a source, kernels as ours are."""
    if kind == "google":
        import tensorflow as tf

        reader = tf.train.load_checkpoint(str(source / "bert_model.ckpt"))
        tensors = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    else:
        tensors = load_file(source / WEIGHTS)
    found = {}
    for item in names.parameters(outside.SIZES["layers"]):
        array = tensors.get(getattr(item, kind))
        if array is not None:
            array = np.asarray(array, np.float32)
            found[item.huggingface] = array.T if kind in item.transposed else array
    return found


def differing(source: Path, kind: str, run: Path, exported: Path) -> str:
    """The first tensor that the run does not have as its source has it."""
    with captured():
        code = main(["export", "--workdir", str(run), "--output", str(exported)])
    if code:
        return "cannot be exported"
    there, here = read(source, kind), read(exported, "huggingface")
    for name, array in there.items():
        if name not in here and "pooler" not in name and "seq_relationship" not in name:
            return f"{name} is lost"
        if name in here and here[name].tobytes() != np.ascontiguousarray(array).tobytes():
            if here[name].shape == array.shape or name in here:
                return f"{name} has other values"
    pieces = (source / "vocab.txt").read_text().removesuffix("\n").split("\n")
    shown = json.loads((exported / "tokenizer.json").read_text())["model"]["vocab"]
    return "" if [*shown] == pieces or sorted(shown, key=shown.get) == pieces else "other pieces"

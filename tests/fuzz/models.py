"""The door of models that others made: what comes in is what an independent reader of the files finds."""

import json
import struct
from pathlib import Path

import numpy as np
from hypothesis import strategies as st
from kits import outside

from bert_jax.cli import main
from fuzz import reference
from fuzz.attempts import Attempt, captured, parsed
from fuzz.damage import change_file, changed_bytes, changed_json
from fuzz.data import files

WEIGHTS = reference.WEIGHTS
TEXT = "un[MASK] the old [MASK]."
HEAD = "cls.predictions.transform.dense.weight"
LARGE = 100  # a value that a damage has made; all others are about 1
SETTINGS = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size")
SETTINGS += ("max_position_embeddings", "type_vocab_size", "hidden_act", "layer_norm_eps")


def imported(draw, world, place) -> Attempt:
    kind = draw(st.sampled_from(["huggingface", "huggingface", "google"]))
    source = outside.copy(world.path / kind, place / "source")
    if kind == "huggingface" and draw(st.booleans()):
        note = change_header(draw, source / WEIGHTS)
    else:
        path = draw(st.sampled_from(files(source)))
        note = f"{path.name}: {change_file(draw, path)}"
    run = place / "run"

    def oracle(code, out, err):
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


def differing(source: Path, kind: str, run: Path, exported: Path) -> str:
    """In what a run, and what it exports and answers, is not as its source is."""
    with captured():
        code = main(["export", "--workdir", str(run), "--output", str(exported)])
    if code:
        return "cannot be exported"
    there, here = reference.open_model(source, kind), reference.open_model(exported)
    problem = other_tensors(there.tensors, here.tensors) or other_settings(there, here)
    if problem or here.pieces != there.pieces:
        return problem or "other pieces"
    shown = json.loads((exported / "tokenizer.json").read_text())["model"]["vocab"]
    if sorted(shown, key=shown.get) != there.pieces:
        return "other pieces in tokenizer.json"
    return other_answer(there, run) if HEAD in there.tensors else ""


def other_tensors(there: dict, here: dict) -> str:
    """The first tensor that came in as something else, bit for bit, or not at all."""
    known = outside.make_tensors()
    for name in known.keys() & there.keys():
        array = np.ascontiguousarray(there[name], np.float32)
        if name not in here:
            # A run without pairs has no place for these.
            if not name.startswith(("bert.pooler", "cls.seq_relationship")):
                return f"{name} is lost"
        elif here[name].shape != array.shape or here[name].tobytes() != array.tobytes():
            return f"{name} has other values"
    made_up = sorted(here.keys() - there.keys())
    return f"{made_up} came from nowhere" if made_up else ""


def other_settings(there: reference.Model, here: reference.Model) -> str:
    one, two = there.settings, here.settings
    alike = {"gelu_pytorch_tanh": "gelu_new"}
    for key in SETTINGS:
        if key in one and alike.get(one[key], one[key]) != alike.get(two[key], two[key]):
            return f"{key}: {one[key]!r} came in as {two[key]!r}"
    return ""


def other_answer(model: reference.Model, run: Path) -> str:
    """Where the run does not predict what NumPy computes from its source."""
    if max(np.abs(array).max(initial=0) for array in model.tensors.values()) > LARGE:
        return ""  # rounding is all that would be compared
    with captured() as streams:
        code = main(["predict", "--model", str(run), TEXT, "--json", "-"])
    if code:
        return "cannot predict"
    return reference.filled(model, TEXT, 5, parsed(streams[0].decode())[0])

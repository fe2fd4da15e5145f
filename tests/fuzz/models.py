"""The door of models that others made: what comes in is what another reader of the files finds."""

import json
import struct
from pathlib import Path

import numpy as np
from hypothesis import strategies as st
from kits import outside
from safetensors.numpy import load_file

from bert_jax.cli import main
from fuzz.attempts import Attempt, captured
from fuzz.damage import change_file, changed_bytes, changed_json, files
from fuzz.runs import WEIGHTS, other_tensors

CONFIGS = {"huggingface": "config.json", "google": "bert_config.json"}
SETTINGS = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size")
SETTINGS += ("max_position_embeddings", "type_vocab_size", "hidden_act", "layer_norm_eps")
ALIKE = {"gelu_pytorch_tanh": "gelu_new"}
# A run without pairs has no place for these.
OPTIONAL = ("bert.pooler", "cls.seq_relationship")


def imported(draw, world, place) -> Attempt:
    kind = draw(st.sampled_from(["huggingface", "huggingface", "google"]))
    source, run = outside.copy(world.path / kind, place / "source"), place / "run"
    if kind == "huggingface" and draw(st.booleans()):
        note = change_header(draw, source / WEIGHTS)
    else:
        note = change_file(draw, draw(st.sampled_from(files(source))))

    def oracle(outcome):
        with captured():
            code = main(["export", "--workdir", str(run), "--output", str(place / "exported")])
        return "cannot be exported" if code else differing(source, kind, place / "exported")

    command = ["import", "--source", source, "--workdir", run, "--config.dtype=float32"]
    return Attempt([*command, "--json", "-"], oracle, f"{kind} {note}")


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


def differing(source: Path, kind: str, exported: Path) -> str:
    """In what an import, exported again, is not as its source is."""
    known, here = outside.make_tensors(), load_file(exported / WEIGHTS)
    # TensorFlow checks what it reads: a checkpoint of the original comes in as it was made, or not at all.
    there = load_file(source / WEIGHTS) if kind == "huggingface" else known
    there = {name: np.asarray(there[name], np.float32) for name in known.keys() & there.keys()}
    lost = {name for name in there if name not in here and name.startswith(OPTIONAL)}
    one, two = (
        json.loads(path.read_text()) for path in (source / CONFIGS[kind], exported / "config.json")
    )
    alike = ALIKE | ({"gelu": "gelu_new"} if kind == "google" else {})
    for key in one.keys() & {*SETTINGS}:
        if alike.get(one[key], one[key]) != alike.get(two[key], two[key]):
            return f"{key}: {one[key]!r} came in as {two[key]!r}"
    pieces = [
        (place / "vocab.txt").read_text().removesuffix("\n").split("\n")
        for place in (source, exported)
    ]
    if pieces[0] != pieces[1]:
        return "other pieces"
    return other_tensors({name: there[name] for name in there.keys() - lost}, here)

"""The door of models that others made: what comes in is what another reader of the files finds."""

import json
import struct
from pathlib import Path

import numpy as np
from hypothesis import strategies as st
from kits import outside
from kits.doors import CONFIGS
from safetensors.numpy import load_file

from fuzz.attempts import Attempt, done
from fuzz.damage import change_file, changed_bytes, changed_json, files
from fuzz.runs import WEIGHTS, check_tensors

SETTINGS = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size")
SETTINGS += ("max_position_embeddings", "type_vocab_size", "hidden_act", "layer_norm_eps")
ALIKE = {"gelu_pytorch_tanh": "gelu_new"}
# A run without pairs has no place for these.
OPTIONAL = ("bert.pooler", "cls.seq_relationship")


def imported(draw, world, place) -> Attempt:
    kind = draw(st.sampled_from(["huggingface", "huggingface", "google"]))
    source, run = outside.copy(world.path / kind, place / "source"), place / "run"
    if kind == "huggingface" and draw(st.booleans()):
        change_header(draw, source / WEIGHTS)
    else:
        change_file(draw, draw(st.sampled_from(files(source))))

    def oracle(outcome):
        done("export", "--workdir", run, "--output", place / "exported")
        check_import(source, kind, place / "exported")

    command = ["import", "--source", source, "--workdir", run, "--config.dtype=float32"]
    return Attempt([*command, "--json", "-"], oracle)


def change_header(draw, path: Path) -> None:
    """A safetensors file whose header says something else of the same data."""
    content = path.read_bytes()
    end = 8 + struct.unpack("<Q", content[:8])[0]
    header = json.dumps(changed_json(draw, json.loads(content[8:end]))).encode()
    if draw(st.integers(0, 3)) == 0:
        header = changed_bytes(draw, header)
    length = draw(st.sampled_from([len(header)] * 5 + [0, 2**63, 2**64 - 1, len(header) + 8]))
    path.write_bytes(struct.pack("<Q", length) + header + content[end:])


def check_import(source: Path, kind: str, exported: Path) -> None:
    """An import, exported again, is as its source is."""
    known, here = outside.make_tensors(), load_file(exported / WEIGHTS)
    # TensorFlow checks what it reads: a checkpoint of the original comes in as it was made, or not at all.
    there = load_file(source / WEIGHTS) if kind == "huggingface" else known
    there = {name: np.asarray(there[name], np.float32) for name in known.keys() & there.keys()}
    lost = {name for name in there if name not in here and name.startswith(OPTIONAL)}
    check_tensors({name: there[name] for name in there.keys() - lost}, here)
    paths = source / CONFIGS[kind], exported / "config.json"
    one, two = (json.loads(path.read_text()) for path in paths)
    alike = ALIKE | ({"gelu": "gelu_new"} if kind == "google" else {})
    for key in one.keys() & {*SETTINGS}:
        assert alike.get(one[key], one[key]) == alike.get(two[key], two[key]), key
    words = ((place / "vocab.txt").read_text().removesuffix("\n") for place in (source, exported))
    assert next(words) == next(words)

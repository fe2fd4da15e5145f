"""Target of models of other programs: import reads the same tensors as another reader of the files."""

import json
import struct
from pathlib import Path

import numpy as np
from hypothesis import strategies as st
from kits import external_models
from kits.malformed_inputs import CONFIGS
from safetensors.numpy import load_file

from bert_jax.tokenizers import huggingface, wordpiece
from fuzz.attempts import Attempt, done
from fuzz.damage import change_file, changed_bytes, changed_json, files
from fuzz.runs import WEIGHTS, check_tensors

SETTINGS = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size")
SETTINGS += ("max_position_embeddings", "type_vocab_size", "hidden_act", "layer_norm_eps")
ALIASES = {"gelu_pytorch_tanh": "gelu_new"}
# A run without sentence pairs does not have these.
OPTIONAL = ("bert.pooler", "cls.seq_relationship")


def external_model(draw, world, directory) -> Attempt:
    kind = draw(st.sampled_from(["huggingface", "huggingface", "google"]))
    source, run = external_models.copy(world.path / kind, directory / "source"), directory / "run"
    if kind == "huggingface" and draw(st.booleans()):
        change_header(draw, source / WEIGHTS)
    else:
        change_file(draw, draw(st.sampled_from(files(source))))

    def oracle(outcome):
        done("export", "--workdir", run, "--output", directory / "exported")
        check_import(source, kind, directory / "exported")

    command = ["import", "--source", source, "--workdir", run, "--config.dtype=float32"]
    return Attempt([*command, "--json", "-"], oracle)


def change_header(draw, path: Path) -> None:
    """Damages the header of a safetensors file, or the length of the header."""
    content = path.read_bytes()
    end = 8 + struct.unpack("<Q", content[:8])[0]
    header = json.dumps(changed_json(draw, json.loads(content[8:end]))).encode()
    if draw(st.integers(0, 3)) == 0:
        header = changed_bytes(draw, header)
    length = draw(st.sampled_from([len(header)] * 5 + [0, 2**63, 2**64 - 1, len(header) + 8]))
    path.write_bytes(struct.pack("<Q", length) + header + content[end:])


def check_import(source: Path, kind: str, exported: Path) -> None:
    """Checks that an import, exported again, equals its source."""
    original, actual = external_models.make_tensors(), load_file(exported / WEIGHTS)
    # TensorFlow verifies checksums, so a checkpoint of Google's BERT is either read unchanged or refused.
    tensors = load_file(source / WEIGHTS) if kind == "huggingface" else original
    names = original.keys() & tensors.keys()
    expected = {name: np.asarray(tensors[name], np.float32) for name in names}
    lost = {name for name in expected if name not in actual and name.startswith(OPTIONAL)}
    check_tensors({name: expected[name] for name in expected.keys() - lost}, actual)
    paths = source / CONFIGS[kind], exported / "config.json"
    before, after = (json.loads(path.read_text()) for path in paths)
    aliases = ALIASES | ({"gelu": "gelu_new"} if kind == "google" else {})
    for key in before.keys() & {*SETTINGS}:
        assert aliases.get(before[key], before[key]) == aliases.get(after[key], after[key]), key
    before, after = (wordpiece.read_pieces(path / "vocab.txt") for path in (source, exported))
    # Embeddings may have more rows than the vocabulary has pieces.
    unused = [huggingface.unused_name(number) for number in range(len(before), len(after))]
    assert after == before + unused

"""An architecture from outside of the package, by the constant of its model: exported and imported."""

import json
from dataclasses import replace

import numpy as np
import pytest
from external import decoder_names
from kits.malformed_inputs import refused
from kits.runs import make_run
from safetensors.numpy import load_file, save_file

from bert_jax.cli import main
from bert_jax.convert import names, open_model

SYSTEM = (
    "model.name=external.decoder",
    "objective.name=external.generation",
    "task.name=token_blocks",
)


@pytest.fixture
def exported(tmp_path):
    """(params of a run, the directory of its export)"""
    *_, params = make_run(tmp_path / "run", *SYSTEM)
    paths = "--model", str(tmp_path / "run"), "--output", str(tmp_path / "out")
    assert main(["export", *paths]) == 0
    return names.by_path(params), tmp_path / "out"


def test_an_exported_decoder_is_imported_again(exported):
    """Also with tensors under other names: without the beginning, a copy of the word embeddings, and buffers."""
    ours, directory = exported
    values = json.loads((directory / "config.json").read_text())
    assert values["architectures"] == ["DecoderForCausalLM"]
    assert "pipeline_tag: text-generation" in (directory / "README.md").read_text()
    tensors = load_file(directory / "model.safetensors")
    attention = "network/blocks_1/attention"
    for leaf, name in (("kernel", "weight"), ("bias", "bias")):
        parts = [ours[f"{attention}/{part}/{leaf}"] for part in ("query", "key", "value")]
        expected = np.concatenate(parts, axis=-1)
        np.testing.assert_array_equal(tensors[f"transformer.h.1.attn.c_attn.{name}"], expected)
    up = tensors["transformer.h.1.mlp.c_fc.weight"]
    np.testing.assert_array_equal(up, ours["network/blocks_1/feed_forward/up/kernel"])
    bare = {name.removeprefix("transformer."): array for name, array in tensors.items()}
    bare |= {"h.1.attn.mask": np.ones((8, 8), np.uint8), "score.weight": np.ones((2, 32))}
    for stored in (tensors, bare | {"lm_head.weight": bare["wte.weight"]}):
        save_file(stored, directory / "model.safetensors")
        model = open_model.open_model(directory, [*SYSTEM, "phases.main.length=16"])
        assert model.info["fresh"] == [] and model.info["imported"]["unused"] == []
        theirs = names.by_path(model.params)
        assert theirs.keys() == ours.keys()
        for path, array in ours.items():
            end = model.vocabulary.size if path.endswith("/words") else None
            np.testing.assert_array_equal(theirs[path][:end], array[:end])


def test_other_objectives_are_not_exported(exported, tmp_path):
    make_run(tmp_path / "masked", SYSTEM[0])
    paths = "--model", tmp_path / "masked", "--output", tmp_path / "other"
    assert "objective.name=mlm" in refused("export", *paths)


def test_axes_of_an_architecture_have_its_sizes(monkeypatch):
    """Factorized embeddings, and kernels of three axes, which have one layout everywhere."""
    rows = [("VE", "words", "words.weight"), ("ED", "up", "up"), ("DHK", "query/kernel", "q", 0, 1)]
    table = replace(
        decoder_names.DECODER,
        parts=(("network", "", "", rows),),
        is_transposed=True,
        sizes=lambda model: {"E": 3, "H": model["heads"], "K": model["width"] // model["heads"]},
    )
    monkeypatch.setitem(names.ARCHITECTURES, "made up", table)
    model = {"name": "made up", "layers": 1, "width": 8, "heads": 2, "feed_forward": 9}
    model["max_length"] = 4
    shapes = {
        entry.huggingface: names.shape(entry, model, 20, "huggingface")
        for entry in names.parameters(model)
    }
    expected = {"words.weight": (20, 3), "up.weight": (8, 3), "up.bias": (8,), "q": (8, 2, 4)}
    assert shapes == expected

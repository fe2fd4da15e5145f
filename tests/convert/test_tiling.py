"""Larger networks from smaller ones: every array by the published rule, and runs that start so."""

import re

import jax
import numpy as np
import pytest
from kits.malformed_inputs import refused
from kits.runs import load, make_run, params, pretraining
from kits.small import ALBERT, MODERN, VOCABULARY, small_batch, small_config

from bert_jax import train
from bert_jax.convert import init_from, tiling
from bert_jax.convert.names import by_path
from bert_jax.objectives import base
from bert_jax.tokenizers import tokenizer

SOURCE = dict(key.split("=") for key in MODERN)
SOURCE |= {"model.layers": "2", "task.name": "packed_documents"}
LARGER = {"model.layers": 5, "model.width": 72, "model.heads": 9, "model.feed_forward": 99}
START = {"optimizer.learning_rate": 0.0, "phases.main.steps": 5, "evaluate.every": 0}
START |= {"checkpoint.every": 5}


def tiled(array, size: int):
    """Returns an array whose first axis has `size` entries: the old ones in the middle, and outward from there, one
    after the other, the same again, as the published loops put them."""
    old = len(array)
    begin = (size - old) // 2
    result = np.zeros((size, *array.shape[1:]), array.dtype)
    result[begin : begin + old] = array
    for number in range(begin):
        result[begin - 1 - number] = array[old - 1 - number % old]
    for number in range(begin + old, size):
        result[number] = array[(number - begin) % old]
    return result


@pytest.mark.slow
def test_every_array_is_that_of_the_published_rule(finished, tmp_path, capsys):
    """Of 2 layers of a width of 32, 5 of 72. Layer 0 has no norm in front of attention: that of layer 1, which starts
    from it, is new."""
    words = tokenizer.load(finished[1] / "tokenizer")
    make_run(tmp_path / "source", *(f"{key}={value}" for key, value in SOURCE.items()), words=words)
    settings = finished[0] | SOURCE | LARGER
    del settings["model.attention_dropout"]
    keys = START | {"init_from": tmp_path / "source"}
    assert train.pretrain(load(settings, **keys), tmp_path / "run") == 0
    before = by_path(params(tmp_path / "source"))
    after = by_path(params(tmp_path / "run"))
    layers = [0, 0, 1, 1, 1]  # round(i * 2 / 5), at most 1
    compared = 0
    new = after.pop("network/blocks_1/attention_norm/scale")
    np.testing.assert_array_equal(new, np.ones(72))
    for path, array in after.items():
        source = path
        if match := re.search(r"blocks_(\d)", path):
            source = path.replace(match[0], f"blocks_{layers[int(match[1])]}")
        expected = before[source]
        for axis, size in enumerate(array.shape):
            expected = np.moveaxis(tiled(np.moveaxis(expected, axis, 0), size), 0, axis)
        np.testing.assert_array_equal(array, expected, path)
        compared += 1
    assert compared >= 35
    assert "fresh: blocks_1\n" in capsys.readouterr().out


def test_layers_are_those_at_the_same_depth():
    def before(layers: int, old: int) -> list[int]:
        paths = [tiling.path_before(f"network/blocks_{n}/x", layers, old) for n in range(layers)]
        return [int(re.search(r"\d+", path)[0]) for path in paths]

    assert before(28, 22)[:6] == [0, 1, 2, 2, 3, 4] and before(28, 22)[-1] == 21
    assert before(5, 2) == [0, 0, 1, 1, 1]  # never behind the last one
    assert tiling.path_before("mlm/bias", 5, 2) == "mlm/bias"


def test_a_deeper_and_wider_albert_starts_from_the_same_block():
    """Its embeddings stay."""
    small, large = (
        small_config(
            *ALBERT, f"model.layers={layers}", f"model.width={width}", f"model.heads={heads}"
        )
        for layers, width, heads in ((3, 32, 4), (5, 48, 6))
    )
    assert tiling.fits(small, large)
    trees = []
    for config in (small, large):
        shapes = jax.eval_shape(
            base.make(config, VOCABULARY).init, jax.random.key(0), small_batch()
        )
        trees.append(by_path(shapes))
    draw = np.random.default_rng(0)
    arrays = {path: draw.normal(size=leaf.shape) for path, leaf in trees[0].items()}
    body = init_from.SourceModel(arrays, {}, VOCABULARY.size, [], small.model.layers, {})
    fitted = init_from.fit(large, body, trees[1])
    assert fitted.keys() == trees[1].keys() == arrays.keys()
    for path, array in fitted.items():
        expected = arrays[path]
        for axis, size in enumerate(array.shape):
            expected = np.moveaxis(tiled(np.moveaxis(expected, axis, 0), size), 0, axis)
        np.testing.assert_array_equal(array, expected, path)
    name = "network/embedder/positions"
    np.testing.assert_array_equal(fitted[name], arrays[name])


@pytest.mark.parametrize(
    "key, value, old",
    [("width", 16, 32), ("heads", 2, 4), ("heads", 8, 4), ("width", 64, 32), ("layers", 1, 4)],
)
def test_a_smaller_network_is_refused(finished, tmp_path, key, value, old):
    """Also if other sizes are larger; and heads of another size."""
    settings, source = finished
    keys = {"init_from": source, "model.layers": 2, "model.feed_forward": 128}
    if key == "layers":
        words = tokenizer.load(source / "tokenizer")
        source = tmp_path / "deep"
        make_run(source, "model.layers=4", words=words)
        keys |= {"init_from": source, "model.feed_forward": 256}
    keys |= {f"model.{key}": value}
    text = refused(*pretraining(settings, tmp_path / "run", **keys))
    assert "in the first phase" in text and "with heads of the same size" in text
    if value < old and key == "layers":
        assert f"config.model.{key}={value} in the first phase" in text and f"has {old}" in text
    assert not (tmp_path / "run").exists()

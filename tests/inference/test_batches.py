"""Batches of texts in NumPy: equal to those of TensorFlow, array by array; and the loop over them."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from kits import labelled
from kits.rows import assemble
from kits.runs import untrained
from kits.small import overrides

from bert_jax import config as configs
from bert_jax.inference import fill_mask
from bert_jax.inference.batches import MULTIPLE, add_masks, make_batch, run_texts
from bert_jax.models import bert
from bert_jax.tasks import base as tasks
from bert_jax.tasks import translation
from bert_jax.tasks.supervised import examples, texts
from bert_jax.tasks.supervised.examples import Example
from bert_jax.tokenizers.special_tokens import BERT_FRAME, frame_of

TOKENIZER = labelled.tokenizer()
LINES = labelled.texts(23) + [" ".join(labelled.WORDS[:40])]
PAIRS = {"task.text": "a,b", "phases.main.length": 48}
TRANSLATION = {
    "task.name": "translation",
    "objective.name": "translation",
    "model.name": "transformer",
    "task.max_pieces": 30,
}


def example(config, line: str, other: str) -> Example:
    if config.task.name == "token_classification":
        return Example(line, line.split(), None)
    if config.task.name == "multiple_choice":
        return Example(line, [line, other, line, other, "x"], None)
    return Example(line, [line, other], None)


def label_of(config, made: Example):
    if config.task.name == "token_classification":
        return [Example(word, [word], "0") for word in made.texts]
    return {"question_answering": [], "translation": None}.get(config.task.name, "0")


def load(name: str, directory, keys: dict):
    settings = labelled.places("", directory) | {"task.labels": "0,1,2,3"} | keys
    if name in ("base", "squad"):
        del settings["task.labels"]
    if name == "base":
        return configs.load("base", overrides(labelled.KEYS | settings))
    return labelled.load(name, settings)


@pytest.mark.parametrize(
    "name, keys",
    [
        ("glue:sst2", PAIRS),
        ("glue:sst2", PAIRS | {"task.both_orders": True}),
        ("glue:sst2", PAIRS | {"objective.causal": True}),
        ("swag", {}),
        ("squad", {}),
        ("ner", {}),
        ("base", TRANSLATION),
    ],
    ids=["pairs", "both orders", "causal", "choices", "windows", "words", "translation"],
)
@pytest.mark.parametrize("frame", [BERT_FRAME, "cls | sep sep | sep"], ids=["BERT", "RoBERTa"])
def test_rows_are_those_of_the_data_set(tmp_path, monkeypatch, name, keys, frame):
    """Texts that are cut, and windows, among them; of a translation, source and target. The model names the frame."""
    monkeypatch.setattr(bert, "FRAME", frame, raising=False)
    config = load(name, tmp_path, keys)
    inputs = [example(config, *pair) for pair in zip(LINES, reversed(LINES), strict=True)]
    split = examples.split_names(config)[-1]
    labelled_too = [made._replace(label=label_of(config, made)) for made in inputs]
    parts = {"train": labelled_too, split: inputs}
    examples.build(config, TOKENIZER, parts, tmp_path / "store")
    config, _, dataset, phase = labelled.opened(config)
    rows = dataset.rows(phase, split, 0)
    store = examples.in_memory(config, TOKENIZER, split, inputs)
    np.testing.assert_array_equal(tasks.make(config, store).rows(phase, split, 0), rows)
    expected = assemble(dataset, phase, rows, split=split)
    real = sum(expected[key] > 0 for key in expected if key.endswith("sequence_ids"))
    assert name == "base" or dataset.sizes(rows).tolist() == real.sum(axis=1).tolist()
    sides = {"": (rows, frame_of(config))}
    if name == "base":
        source, target = translation.frames(config)
        sides = {"": (rows[:, :, 0], source), "target_": (rows[:, :, 1], target)}
    for prefix, (side, frame) in sides.items():
        around = frame.ids(TOKENIZER.special)
        sequences = [texts.wrap(store.splits[split].tokens, row, around) for row in side]
        arrays = make_batch(sequences, phase.length, TOKENIZER.pad)
        compared = [key for key in arrays if prefix + key in expected]
        assert len(compared) >= 3
        for key in compared:
            array = expected[prefix + key]
            size = arrays[key].shape[-1]
            np.testing.assert_array_equal(arrays[key], array[..., :size], err_msg=prefix + key)
            assert not array[..., size:].any()  # of more packed sequences


@pytest.fixture(scope="module")
def model():
    return untrained(TOKENIZER, "model.max_length=80")


def test_results_are_in_the_order_of_the_rows(model):
    """Batches have rows of similar sizes, a padded length, and a number of rows that is a power of two."""
    sizes = [3, 40, 80, 1, 33, 64, 7]
    rows = [[([5] * (size - 1) + [number], 0)] for number, size in enumerate(sizes, 10)]
    found = []

    def run(params, batch, numbers):
        found.append(batch["tokens"].shape)
        ends = (batch["sequence_ids"] > 0).sum(axis=1)
        assert batch["rows"][: len(numbers)].tolist() == numbers
        assert batch["row_weights"].sum() == len(numbers)
        last = np.take_along_axis(batch["tokens"], ends[:, None] - 1, axis=1)[:, 0]
        return zip(ends.tolist(), last.tolist(), strict=True)

    expected = [*zip(sizes, range(10, 17), strict=True)]
    assert run_texts(model, run, rows) == expected and found == [(8, 80)]
    found.clear()
    assert run_texts(model, run, rows, count=2) == expected
    assert found == [(2, 80), (2, 64), (2, 32), (2, 32)]
    found.clear()
    assert run_texts(model, run, rows, np.array(sizes), tokens=2 * MULTIPLE) == expected
    assert found == [(1, 80), (1, 64), (1, 64), (1, 64), (2, 32), (2, 32)]


def test_each_shape_is_traced_once(model):
    """Also by later calls, since a function and an objective know their programs."""
    traced = []

    def outputs(params, batch):
        traced.append(batch["tokens"].shape)
        return {"mlm_logits": jax.nn.one_hot(batch["masked_targets"], model.vocabulary.size)}

    own = model._replace(objective=replace(model.objective, outputs=outputs))
    lines = ["the [MASK] fox", "[MASK] sleeps", "jumps over " * 12 + "[MASK]"]
    for _ in range(2):
        for part in (lines, lines[:2], lines[1:2]):
            fill_mask.candidates(own, part, 3, part)
    assert len(traced) == len({*traced}) == 3


def test_predictions_are_the_first_masks():
    batch = make_batch([[([4, 9, 4, 4], 0)], [([9, 4], 0)], [([4], 0)]], 6, None)
    arrays = add_masks(batch, 4, [[7, 8, 6], [5], []])
    assert arrays["masked_positions"].tolist() == [[0, 2, 3, 0], [1, 0, 0, 0], [0] * 4]
    assert arrays["masked_targets"].tolist() == [[7, 8, 6, 0], [5, 0, 0, 0], [0] * 4]
    assert arrays["masked_weights"].sum(axis=1).tolist() == [3, 1, 0]

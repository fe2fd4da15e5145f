"""Classification of texts: rows, targets, scores, predictions."""

import sys

import numpy as np
import pytest
from kits import labelled

from bert_jax import config as configs
from bert_jax.convert.vocabulary_extension import with_special
from bert_jax.errors import BadInput
from bert_jax.tasks import classification
from bert_jax.tasks.supervised import example_report, examples, labels, predictions, scores, texts
from bert_jax.tasks.supervised.examples import Example

TOKENIZER = labelled.tokenizer()
model = labelled.model


def build(directory, rows: list[tuple], tokenizer=TOKENIZER, causal=False, **keys):
    """Returns (config, store, dataset, phase) of rows (text, ..., label), which are both splits."""
    keys = {f"task.{key}": value for key, value in keys.items()} | labelled.places("", directory)
    keys["objective.causal"] = causal
    config = labelled.load("glue:sst2", keys)
    made = {
        split: [Example(f"{split}:{n}", list(row[:-1]), row[-1]) for n, row in enumerate(rows, 1)]
        for split in ("train", "dev")
    }
    directory.mkdir(exist_ok=True)
    examples.build(config, tokenizer, made, directory / "store")
    return labelled.opened(config)


def test_a_row_has_both_texts_and_the_target(tmp_path):
    pairs = [("the first text", "a second", "yes"), ("more", "", "no"), ("again", "text", "yes")]
    config, _, dataset, phase = build(tmp_path, pairs, text="a,b")
    _, found = labelled.batch_of(dataset, phase)
    special = TOKENIZER.special
    for tokens, segments, (a, b, _) in zip(found["tokens"], found["segments"], pairs, strict=True):
        (first, second), unk = TOKENIZER.encode([a, b]), [special["unk"]]
        row = [special["cls"], *first, special["sep"], *(second or unk), special["sep"]]
        assert tokens.tolist() == row + [special["pad"]] * (32 - len(row))
        assert segments.sum() == len(second or unk) + 1
    assert config.task.labels == ("no", "yes")
    assert found["targets"].tolist() == [1, 0, 1] and found["label_weights"].all()


def test_a_single_class_is_refused_before_a_store_is_made(tmp_path):
    with pytest.raises(BadInput, match="^config.task.label='label': .*'yes'"):
        build(tmp_path, [("a text", "yes"), ("more", "yes")])
    assert not (tmp_path / "store").exists()


def test_a_row_has_both_orders(tmp_path):
    """The first as in a row of half the length, the second with the same tokens; the store is that of one order."""
    pairs = [("the first text", "a second", "yes"), ("more " * 9, "text " * 12, "no")]
    keys = {"text": "a,b", "both_orders": True}
    _, store, dataset, phase = build(tmp_path / "both", pairs, **keys)
    rows, found = labelled.batch_of(dataset, phase)
    _, plain, one, half = build(tmp_path / "one", pairs, text="a,b")
    assert plain.fingerprint == store.fingerprint
    _, single = labelled.batch_of(one, half._replace(length=16))
    assert (dataset.sizes(rows) == (found["sequence_ids"] > 0).sum(1)).all()
    assert dataset.sequences(phase) == 2
    for row, size in enumerate((single["sequence_ids"] > 0).sum(1)):
        ids = np.repeat([1, 2, 0], [size, size, 32 - 2 * size])
        assert (found["sequence_ids"][row] == ids).all()
        assert found["cls_positions"][row].tolist() == [0, size]
        assert (found["positions"][row, ids > 0] == [*range(size)] * 2).all()
        first, second = np.split(found["tokens"][row, : 2 * size], 2)
        assert (first == single["tokens"][row, :size]).all()
        a, b = np.split(first, [np.argmax(single["segments"][row])])
        assert second.tolist() == [a[0], *b, *a[1:]]
    with pytest.raises(BadInput, match="task.both_orders"):
        labelled.load("glue:sst2", {"task.both_orders": True})


@pytest.mark.parametrize("keys", [{}, {"text": "a,b"}, {"text": "a,b", "both_orders": True}])
def test_rows_of_causal_models_end_with_the_end_token(tmp_path, keys):
    """If their vocabulary has one; of another model they end with [SEP], as those without it."""
    pairs = [("the first text", "a second", "yes"), ("more " * 20, "text " * 30, "no")]
    texts = [row if keys else row[1:] for row in pairs]
    more = with_special(TOKENIZER, True)
    assert more.pieces == [*TOKENIZER.pieces, "[END]"]
    batches = []
    for name, tokenizer, causal in [("a", TOKENIZER, True), ("b", more, False), ("c", more, True)]:
        _, _, dataset, phase = build(tmp_path / name, texts, tokenizer, causal, **keys)
        _, found = labelled.batch_of(dataset, phase)
        batches.append(found)
    expected = batches[0]["tokens"].copy()
    assert (batches[1]["tokens"] == expected).all()
    numbers = np.pad(batches[0]["sequence_ids"], [(0, 0), (0, 1)])
    is_last = (numbers[:, :-1] > 0) & (np.diff(numbers) != 0)
    assert (expected[is_last] == TOKENIZER.sep).all()
    expected[is_last] = more.special["end"]
    assert (batches[2]["tokens"] == expected).all()


@pytest.mark.parametrize("name", ["ner", "swag"])
def test_rows_of_other_tasks_end_with_it_too(model, tmp_path, name):
    """It has no label, and is not a text's."""
    if name == "ner":
        for number, split in enumerate(("train", "dev")):
            labelled.write_entities(tmp_path / f"{split}.txt", 9, number)
    else:
        labelled.write_choices(tmp_path, *(labelled.make_choices(9, seed) for seed in (0, 1)))
    keys = {"tokenizer.add_special": True, "objective.causal": True}
    _, store, dataset, phase = labelled.resolve(
        labelled.load(name, labelled.places(model, tmp_path), **keys)
    )
    _, found = labelled.batch_of(dataset, phase)
    numbers = np.pad(found["sequence_ids"], [(0, 0), (0, 1)])
    is_last = (numbers[:, :-1] > 0) & (np.diff(numbers) != 0)
    is_end = found["tokens"] == store.manifest["special"]["end"]
    assert (is_end == is_last).all() and is_last.sum() == 9 * dataset.sequences(phase)
    if name == "ner":
        assert not found["label_weights"][is_last].any()


def test_several_labels_and_numbers(tmp_path):
    rows = [("one", "x,y"), ("two", ["z"]), ("three", "")]
    config, _, dataset, phase = build(tmp_path / "a", rows, kind="labels", metrics="micro_f1")
    assert config.task.labels == ("x", "y", "z")
    found, batch = labelled.batch_of(dataset, phase)
    assert batch["targets"].tolist() == [[1, 1, 0], [0, 0, 1], [0, 0, 0]]
    logits = np.array([[[2.0, -1, -2]], [[-1.0, -1, 3]], [[-1.0, 1, -1]]], np.float32)
    scores = dataset.score("dev", {"label_logits": logits}, found)
    assert scores["micro_f1"] == pytest.approx(2 / 3) and scores["majority"] == pytest.approx(1 / 3)
    assert scores["accuracy"] == 1 / 3 + scores["over_majority"]
    decoded = classification.decode(config, None, "dev", {"label_logits": logits}, found)
    assert [each["prediction"] for each in decoded] == [["x"], ["z"], ["y"]]
    assert decoded[0]["probabilities"]["x"] == pytest.approx(1 / (1 + np.exp(-2)))
    rows = [("one", "1.5"), ("two", "-2"), ("three", "0")]
    config, _, *made = build(tmp_path / "b", rows, kind="number", metrics="pearson")
    found, batch = labelled.batch_of(*made)
    assert batch["targets"].tolist() == [1.5, -2, 0]
    scores = made[0].score("dev", {"label_logits": np.arange(3.0)[:, None, None]}, found)
    assert scores["loss_of_mean"] == pytest.approx(np.var([1.5, -2, 0]))
    for label in ("many", "nan", "1e39", ["1"]):
        with pytest.raises(BadInput, match="train:1: label "):
            texts.encode(config, TOKENIZER, [Example("train:1", ["x"], label)], [])
    config = labelled.load("glue:sst2", {})
    with pytest.raises(BadInput, match="train:1: label .*one"):
        labels.target(config, Example("train:1", ["x"], ["a", "b"]), ["a", "b", "c"])


@pytest.mark.parametrize(
    "label, names",
    [
        ("a, b", ["a", "b"]),
        ("", []),
        (["a, b", "c"], ["a, b", "c"]),
        ('["a", "b"]', ["a", "b"]),
        ("['a', 'b']", ["a", "b"]),
        ("[]", []),
        ("[3, 7]", ["3", "7"]),
        (" ['a']", ["a"]),
        ("0,1", ["0", "1"]),
        ("a (b), :)", ["a (b)", ":)"]),
    ],
)
def test_lists_of_labels_are_read(label, names):
    assert labels.names_of(Example("t:1", ["x"], label), "labels") == names


@pytest.mark.parametrize("label", ["a,a", ["1", "0", "1"], "[1, 0, 1]", "[[1]]", '["a", null]'])
def test_other_lists_of_labels_are_refused(label):
    with pytest.raises(BadInput, match="t:1"):
        labels.names_of(Example("t:1", ["x"], label), "labels")


@pytest.mark.parametrize(
    "label", [[], ["a", "b"], "['a', 'b']", "[]", "['a' 'b']", "('a',)", '{"name": "a"}', "[1, 0]"]
)
def test_a_class_is_one_label(label):
    config = labelled.load("glue:sst2", {})
    with pytest.raises(BadInput, match="t:1"):
        labels.target(config, Example("t:1", ["x"], label), ["a", "b"])
    assert labels.target(config, Example("t:1", ["x"], ["b"]), ["a", "b"]) == 1


def test_labels_are_counted(tmp_path):
    """Of the split to train on; a row may have several, or none."""
    _, store, *_ = build(tmp_path / "a", [("a", "x"), ("b", "y"), ("c", "y")])
    assert example_report.count_labels(store) == {"x": 1, "y": 2}
    rows = [("a", "x,y"), ("b", "y"), ("c", "")]
    _, store, *_ = build(tmp_path / "b", rows, kind="labels", metrics="micro_f1")
    assert example_report.count_labels(store) == {"x": 1, "y": 2}
    _, store, *_ = build(tmp_path / "c", [("a", "1.5")], kind="number", metrics="pearson")
    assert example_report.count_labels(store) == {}


@pytest.mark.parametrize("named", ["Section", "sections"])
@pytest.mark.parametrize("split", ["train", "dev"])
def test_a_column_of_labels_that_does_not_exist_is_named(tmp_path, named, split):
    """With the columns of the table."""
    for name in ("train", "dev"):
        column = "section" if name == split else named
        (tmp_path / f"{name}.csv").write_text(f"text,{column}\na,x\nb,y\n")
    keys = labelled.places("", tmp_path) | {"task.label": named, "task.dev": "dev.csv"}
    with pytest.raises(BadInput, match=f"{split}.csv.*'{named}'.*'text', 'section'"):
        examples.read(labelled.load("classify", keys))


@pytest.mark.parametrize(
    "rows, values, are_classes", [(600, 500, False), (60, 30, True), (20, 20, True)]
)
def test_values_that_differ_in_most_rows_are_no_classes(tmp_path, rows, values, are_classes):
    found = [Example(f"t:{n}", ["x"], f"v{n % values}") for n in range(rows)]
    keys = labelled.places("", tmp_path) | {"task.label": "id"}
    config = labelled.load("classify", keys)
    if are_classes:
        assert len(classification.names(config, found)) == values
        return
    with pytest.raises(BadInput, match=f"task.label='id'.*{values}.*{rows}"):
        classification.names(config, found)


def test_too_few_rows_to_hold_some_out_name_the_share(tmp_path):
    (tmp_path / "train.csv").write_text("text,label\n" + "a,x\nb,y\n" * 2)
    keys = labelled.places("", tmp_path)
    for share in (0.1, 0.0, 0.9):
        with pytest.raises(BadInput, match=f"task.heldout={share}"):
            examples.read(labelled.load("classify", keys, **{"task.heldout": share}))
    parts, _ = examples.read(labelled.load("classify", keys, **{"task.heldout": 0.25}))
    assert len(parts["dev"]) == 1


def test_rows_without_text_are_skipped_and_counted(tmp_path, capsys):
    """Empty lines, and up to one in a hundred with other columns; others without a label are refused."""
    rows = ["text,label", *["a,x", "b,y"] * 100, "", "no label", ""]
    (tmp_path / "train.csv").write_text("\n".join(rows))
    config = labelled.load("classify", labelled.places("", tmp_path))
    parts, dropped = examples.read(config)
    assert sum(map(len, parts.values())) == 200
    assert dropped == {"train": 2}
    assert "train.csv:203" in capsys.readouterr().err
    for row in ("c,", "c,x,y\nd"):
        (tmp_path / "train.csv").write_text("\n".join([*rows, row]))
        with pytest.raises(BadInput, match="train.csv:20[35]"):
            examples.read(config)


def test_a_blank_label_is_none(tmp_path):
    (tmp_path / "t.csv").write_text("text,label\na, \nb,x \nc,\n")
    config = labelled.load("classify", labelled.places("", tmp_path))
    found = classification.load(config, tmp_path / "t.csv")
    assert [each.label for each in found] == [None, "x ", None]


def test_predictions_are_written_with_their_digits():
    logits = np.array([[[0.1]], [[-1234.5678]], [[3e-8]]], np.float32)
    found = predictions.describe("number", logits, ())
    lines = predictions.text(found, ".tsv").splitlines()[1:]
    assert [np.float32(line.split("\t")[1]) for line in lines] == logits.ravel().tolist()
    assert lines[0] == "0\t0.1"
    odd = [{"prediction": "a\nb"}, {"prediction": ["c\td", "e\r\n"]}]
    assert [line.count("\t") for line in predictions.text(odd, ".tsv").splitlines()] == [1] * 3


def test_scores_equal_their_formulas():
    draw = np.random.default_rng(0)
    true, said = draw.integers(0, 2, (2, 50))
    hits = (true & said).sum()
    f1 = 2 * hits / (true.sum() + said.sum())
    matthews = np.corrcoef(true, said)[0, 1]
    expected = {"accuracy": (true == said).mean(), "f1": f1, "matthews": matthews}
    assert scores.compute(expected, scores.functions(), true, said) == pytest.approx(expected)


@pytest.mark.parametrize("said, accuracy", [("bbbbbb", 1 / 2), ("aaaaaa", 1 / 6), ("abbbcc", 1)])
def test_an_accuracy_is_beside_the_share_of_the_most_frequent_class(tmp_path, said, accuracy):
    """Whatever the metrics are."""
    rows = [(f"text {number}", name) for number, name in enumerate("abbbcc")]
    _, _, dataset, phase = build(tmp_path, rows, metrics="macro_f1")
    found, _ = labelled.batch_of(dataset, phase)
    logits = np.eye(3)[["abc".index(name) for name in said]][:, None]
    scores = dataset.score("dev", {"label_logits": logits}, found)
    assert scores["majority"] == 0.5 and scores["over_majority"] == pytest.approx(accuracy - 0.5)


def test_a_share_is_held_out_for_every_example_once(tmp_path):
    found = [Example(str(n), ["x"], "y") for n in range(97)]
    parts = examples.split_off(found, 0.2)
    assert len(parts["dev"]) == 19 and sorted(parts["dev"] + parts["train"]) == sorted(found)
    assert parts == examples.split_off(found, 0.2)


@pytest.mark.parametrize("task", ["classification", "multiple_choice", "token_classification"])
def test_a_missing_library_of_scores_is_refused_before_training(task, monkeypatch):
    for name in ("sklearn", "seqeval"):  # which needs the former
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(BadInput, match="finetune"):
        configs.load("base", [f"task.name={task}"])


@pytest.mark.parametrize(
    "keys, labels, logits, samples, wrong",
    [
        (
            {"kind": "number", "metrics": ("pearson",)},
            ["1", "2.5", "4"],
            [[1.1], [9], [4]],
            [("1.1", "1"), ("9", "2.5")],
            [["9", "2.5", "not a text"], ["1.1", "1", "a text"]],
        ),
        (
            {"kind": "labels"},
            ["a", "b,c", ""],
            [[1, -1, -1], [1, 1, -1], [-1, -1, 1]],
            [("a", "a"), ("a,b", "b,c")],
            [["a,b", "b,c", "not a text"], ["c", "(none)", "the end"]],
        ),
    ],
)
def test_a_review_has_the_predictions_that_are_furthest_off(
    tmp_path, keys, labels, logits, samples, wrong
):
    pairs = [*zip(["a text", "not a text", "the end"], labels, strict=True)]
    _, _, dataset, phase = build(tmp_path, pairs, **keys)
    rows = dataset.rows(phase, "dev", 0)
    outputs = {"label_logits": np.array(logits)[:, None]}
    review = dataset.review("dev", outputs, rows, 2)
    assert [(part["guess"], part["target"]) for _, part in review["samples"]] == samples
    assert review["tables"]["wrong predictions"][1:] == wrong

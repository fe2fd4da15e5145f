"""Multiple choice: tables of endings, packed sequences, a run that learns."""

import json

import numpy as np
import pytest
from kits import labelled
from kits.labelled import CHOICES, LENGTH, make_choices, places, write_choices
from kits.runs import use_devices

from bert_jax.cli import main
from bert_jax.errors import BadInput
from bert_jax.tasks import multiple_choice
from bert_jax.tokenizers import tokenizer as tokenizers

model = labelled.model


@pytest.mark.parametrize("longest", [3, 30])
def test_a_row_has_the_sequences_of_all_endings(model, tmp_path, longest):
    """Each is what it would be alone in a quarter of the row: the end of its longer text is cut."""
    made = make_choices(12, 0, longest)
    write_choices(tmp_path, made, made)
    config, store, dataset, phase = labelled.resolve(labelled.load("swag", places(model, tmp_path)))
    tokenizer = tokenizers.load(store.path / "tokenizer")
    rows, batch = labelled.batch_of(dataset, phase)
    assert (dataset.sizes(rows) == (batch["sequence_ids"] > 0).sum(1)).all()
    assert batch["targets"].tolist() == [example["label"] for example in made]
    assert (batch["label_weights"] == 1).all()
    for number, example in enumerate(made):
        for ending in range(4):
            texts = example["sent1"], f"{example['sent2']} {example[f'ending{ending}']}"
            first, second = tokenizer.encode(texts)
            while len(first) + len(second) > LENGTH - 3:
                longer = first if len(first) > len(second) else second
                longer.pop()
            ids = [tokenizer.cls, *first, tokenizer.sep, *second, tokenizer.sep]
            at = np.flatnonzero(batch["sequence_ids"][number] == ending + 1)
            assert batch["tokens"][number, at].tolist() == ids
            assert batch["positions"][number, at].tolist() == [*range(len(ids))]
            segments = batch["segments"][number, at]
            assert (segments == (np.arange(len(ids)) >= len(first) + 2)).all()
            assert batch["cls_positions"][number, ending] == at[0]


def test_columns_have_other_names(model, tmp_path):
    """Several of the context, no start, three endings, a table without labels."""
    (tmp_path / "train.csv").write_text('a,b,x,y,z\n"One, two",three,4,,6\n')
    keys = {"task.context": "a,b", "task.start": "", "task.endings": "x,y,z"}
    config = labelled.load("swag", places(model, tmp_path), **keys)
    (found,) = multiple_choice.load(config, tmp_path / "train.csv")
    assert found.texts == ["One, two three", "4", "", "6"] and found.label is None
    assert multiple_choice.names(config, [found]) == ["0", "1", "2"]
    with pytest.raises(BadInput, match="2 texts.* 4 "):
        multiple_choice.parse(config, ["context", "ending"])
    for key, value in (("task.endings", "x"), ("task.context", "()"), ("phases.main.length", 19)):
        with pytest.raises(BadInput, match=key):
            labelled.load("swag", places(model, tmp_path), **{key: value})


@pytest.mark.parametrize(
    "label, named", [(4, "'4'"), ("", "no label"), (None, "no label"), ("one", "'one'")]
)
def test_bad_labels_are_refused(model, tmp_path, label, named):
    made = make_choices(3, 0)
    labels = [{"label": str(example["label"])} for example in made]
    made = [example | label for example, label in zip(made, labels, strict=True)]
    other = label if label is None else str(label)
    write_choices(tmp_path, made, [*made[:2], made[2] | {"label": other}])
    with pytest.raises(BadInput) as error:
        labelled.resolve(labelled.load("swag", places(model, tmp_path)))
    assert "dev.jsonl:3" in str(error.value) and named in str(error.value)
    assert not (tmp_path / "store").exists()


@pytest.mark.full
def test_it_learns(model, tmp_path, capsys, monkeypatch):
    """`predict` has the accuracy of the run, and chooses among endings of its arguments."""
    use_devices(monkeypatch, 1)
    dev = make_choices(40, 2)
    write_choices(tmp_path, make_choices(200, 1), dev)
    keys = {"task.epochs": 8, "objective.pool": "mean", "optimizer.learning_rate": 1e-2}
    last = labelled.tune(labelled.load("swag", places(model, tmp_path), **keys), tmp_path / "run")
    assert last["split"] == "dev" and last["accuracy"] > 0.9
    capsys.readouterr()
    command = "predict", "--model", str(tmp_path / "run"), "--json", "-"
    assert main([*command, "--input", str(tmp_path / "dev.jsonl")]) == 0
    found = json.loads(capsys.readouterr().out)
    right = [each["prediction"] == label["label"] for each, label in zip(found, dev, strict=True)]
    assert np.mean(right) == pytest.approx(last["accuracy"])
    texts = [dev[0]["sent1"], *(f"{dev[0]['sent2']} {dev[0][key]}" for key in CHOICES[2:])]
    assert main([*command, *texts]) == 0
    (alone,) = json.loads(capsys.readouterr().out)
    assert alone["prediction"] == found[0]["prediction"]
    assert alone["probabilities"] == pytest.approx(found[0]["probabilities"], abs=1e-5)

"""Named entities: the column format, labels on first pieces, words that do not fit, scores, a run that learns."""

import json

import numpy as np
import pytest
from kits import labelled
from kits.labelled import LENGTH, WORDS, places
from kits.runs import use_devices
from kits.texts import PROSE
from seqeval.metrics import accuracy_score, f1_score, precision_score, recall_score

from bert_jax.cli import main
from bert_jax.data import examples
from bert_jax.data.examples import Example
from bert_jax.errors import BadInput
from bert_jax.tasks import entities
from bert_jax.tokenizers import tokenizer as tokenizers

model = labelled.model


def load(model, data, train: str, dev: str = "a\tO", **keys):
    """Returns the config of files with these contents."""
    (data / "train.txt").write_bytes(train.encode())
    (data / "dev.txt").write_text(dev)
    return labelled.load("ner", places(model, data), **keys)


def read(config, data):
    """Returns (place, words, labels) of the sentences of train.txt."""
    found = entities.load(config, data / "train.txt")
    return [(f"{e.place[-1]}", e.texts, e.label and [w.label for w in e.label]) for e in found]


COLUMNS = {
    "tabs": (
        "\ufeffthe cat\tO\n\tO\n \t\r\nx\tB-a\r\n\ufeff\n\n",
        ("1", ["the cat", ""], ["O", "O"]),
    ),
    "blanks": ("-DOCSTART- -X- O\n\na\u00a0b  NN   O\n\nx NN B-a", ("3", ["a\u00a0b"], ["O"])),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_are_read(model, tmp_path, name):
    """Blank lines may have blanks, line ends and byte order marks; empty words are words."""
    text, first = COLUMNS[name]
    config = load(model, tmp_path, text)
    found = read(config, tmp_path)
    assert found[0] == first and [words for _, words, _ in found[1:]] == [["x"]]
    assert entities.names(config, entities.load(config, tmp_path / "train.txt")) == ["O", "B-a"]


def test_other_columns_and_none(model, tmp_path):
    config = load(model, tmp_path, "1 a NN X\n2 b NN Y\n", **{"task.columns": "(1, 2)"})
    assert read(config, tmp_path) == [("1", ["a", "b"], ["NN", "NN"])]
    config = load(model, tmp_path, "a\nb\n")
    assert read(config, tmp_path) == [("1", ["a", "b"], None)]


@pytest.mark.parametrize(
    "train, dev, named",
    [
        ("a\tO\n\nb\tO\n", "c\tO\nd\tB-x\n", ("dev.txt:2", "B-x")),
        ("a\nb\n", "c\tO", ("train.txt:1",)),
        ("\n\n", "c\tO", ("train",)),
    ],
)
def test_bad_labels_are_refused(model, tmp_path, train, dev, named):
    with pytest.raises(BadInput) as error:
        labelled.resolve(load(model, tmp_path, train, dev))
    assert all(part in str(error.value) for part in named)
    assert not (tmp_path / "store").exists()


def test_bad_columns_are_refused(model, tmp_path):
    config = load(model, tmp_path, "a NN O\nb O", **{"task.columns": "(0, 2)"})
    with pytest.raises(BadInput, match="train.txt:2: "):
        examples.read(config)
    (tmp_path / "train.txt").write_bytes(b"a NN O\n\xe9 NN O\n")
    with pytest.raises(BadInput, match="train.txt:2: "):
        examples.read(config)
    with pytest.raises(BadInput, match="task.data"):
        entities.load(config, "hf:ner:train")
    for columns in ("(0,)", "('a', 'b')"):
        with pytest.raises(BadInput, match="task.columns"):
            load(model, tmp_path, "a O", **{"task.columns": columns})


def sentences() -> list[list[tuple[str, str]]]:
    """Returns sentences up to twice as long as a row, of words of one, several and no pieces."""
    draw = np.random.default_rng(1)
    words = [*WORDS[:20], "", "🙂", "\u200b", "the", "unknowable"]
    kinds = ["O", "O", "B-a", "I-a", "B-b"]
    sizes = [1, 2, 5, 9, 16, 30, 40]
    return [[(draw.choice(words), draw.choice(kinds)) for _ in range(size)] for size in sizes]


@pytest.fixture(scope="module")
def world(model, tmp_path_factory):
    """(sentences, config, store, dataset, phase), with the sentences in both splits."""
    directory, made = tmp_path_factory.mktemp("world"), sentences()
    text = "\n\n".join("\n".join(map("\t".join, sentence)) for sentence in made)
    return made, *labelled.resolve(load(model, directory, text, text))


def test_the_first_piece_of_a_word_has_its_label(world):
    made, config, store, dataset, phase = world
    tokenizer = tokenizers.load(store.path / "tokenizer")
    rows, batch = labelled.batch_of(dataset, phase)
    assert (dataset.sizes(rows) == (batch["sequence_ids"] > 0).sum(1)).all()
    for number, sentence in enumerate(made):
        pieces, labels = [tokenizer.cls], [None]
        for word, label in sentence:
            ids = tokenizer.encode([word])[0] or [tokenizer.unk]
            pieces += ids
            labels += [label] + [None] * (len(ids) - 1)
        pieces, labels = [*pieces[: LENGTH - 1], tokenizer.sep], [*labels[: LENGTH - 1], None]
        size = len(pieces)
        assert batch["tokens"][number, :size].tolist() == pieces
        weights = batch["label_weights"][number]
        assert weights[:size].tolist() == [label is not None for label in labels]
        assert not weights[size:].any() and not batch["sequence_ids"][number, size:].any()
        found = batch["targets"][number][weights > 0]
        assert [config.task.labels[i] for i in found] == [label for label in labels if label]


def test_scores_equal_a_direct_computation(world):
    """Over all words of the file in another order; those that do not fit are O."""
    made, config, store, dataset, phase = world
    rows, batch = labelled.batch_of(dataset, phase)
    order = np.arange(len(rows))[::-1]
    rows, weights, labels = rows[order], batch["label_weights"][order], config.task.labels
    logits = np.random.default_rng(0).normal(size=(*weights.shape, len(labels)))
    truth, said = [], []
    for number, row, classes in zip(order, weights, logits.argmax(-1), strict=True):
        truth.append([label for _, label in made[number]])
        said.append([labels[i] for i in classes[row > 0]])
        said[-1] += ["O"] * (len(truth[-1]) - len(said[-1]))
    functions = {"f1": f1_score, "precision": precision_score, "recall": recall_score}
    functions["accuracy"] = accuracy_score
    assert dataset.score("train", {"label_logits": logits}, rows) == pytest.approx(
        {name: function(truth, said) for name, function in functions.items()}
    )
    found = entities.decode(config, store, "train", {"label_logits": logits}, rows)
    assert [each["prediction"] for each in found] == said
    assert any(len(sentence) > LENGTH for sentence in said)


@pytest.mark.parametrize("kind", ["wordpiece", "unigram", "byte_bpe"])
def test_words_have_the_pieces_that_they_have_within_a_text(model, tmp_path, kind):
    tokenizer = tokenizers.train(kind, PROSE, {"byte_bpe": 300}.get(kind, 200), True)
    words = PROSE[0].replace(",", "").split()
    sentence = Example("", ["", *words], None)
    made = entities.encode(load(model, tmp_path, "a O"), tokenizer, [sentence], ["O"])
    ((ids,),) = made.texts
    assert ids[1:] == tokenizer.encode([" " + " ".join(words)])[0]
    assert (made.arrays["targets"] >= 0).sum() == 1 + len(words)


@pytest.mark.slow
def test_it_learns(model, tmp_path, capsys, monkeypatch):
    """Names and the words after them; then `predict` labels the words of a text."""
    use_devices(monkeypatch, 1)
    for name, number in (("train", 160), ("dev", 40)):
        labelled.write_entities(tmp_path / f"{name}.txt", number, seed=number)
    keys = {"phases.main.length": 16, "optimizer.learning_rate": 1e-2}
    last = labelled.tune(labelled.load("ner", places(model, tmp_path), **keys), tmp_path / "run")
    assert last["split"] == "dev" and last["f1"] > 0.8 and last["accuracy"] > last["f1"] - 0.1
    capsys.readouterr()
    text = f"{WORDS[19]} {WORDS[2]} {WORDS[18]} {WORDS[17]}"
    assert main(["predict", "--model", str(tmp_path / "run"), "--json", "-", text]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["prediction"] == ["O", "B-per", "I-per", "O"]

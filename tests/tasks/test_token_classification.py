"""Named entities: the column format, labels on first pieces, words that do not fit, scores, a run that learns."""

import json

import numpy as np
import pytest
from kits import labelled
from kits.labelled import LENGTH, WORDS, places
from kits.runs import use_devices
from kits.texts import PROSE
from seqeval.metrics import accuracy_score, f1_score, precision_score, recall_score
from seqeval.metrics.sequence_labeling import get_entities
from seqeval.scheme import BILOU, IOB1, IOB2, IOBES, IOE2, Entities
from sklearn import metrics

from bert_jax.cli import main
from bert_jax.errors import BadInput
from bert_jax.tasks import token_classification
from bert_jax.tasks.supervised import examples
from bert_jax.tasks.supervised.examples import Example
from bert_jax.tasks.token_classification import conll, entity_labels
from bert_jax.tokenizers import tokenizer as tokenizers

model = labelled.model


def load(model, data, train: str, dev: str = "a\tO", **keys):
    """Returns the config of files with these contents."""
    (data / "train.txt").write_bytes(train.encode())
    (data / "dev.txt").write_text(dev)
    return labelled.load("ner", places(model, data), **keys)


def read(config, data):
    """Returns (place, words, labels) of the sentences of train.txt."""
    found = conll.load(config, data / "train.txt")
    return [(f"{e.location[-1]}", e.texts, e.label and [w.label for w in e.label]) for e in found]


COLUMNS = {
    "tabs": (
        "\ufeffthe cat\tO\n\tO\n \t\r\nx\tB-a\r\n\ufeff\n\n",
        ("1", ["the cat", ""], ["O", "O"]),
    ),
    "blanks": ("-DOCSTART- -X- O\n\na\u00a0b  NN   O\n\nx NN B-a", ("3", ["a\u00a0b"], ["O"])),
}


@pytest.mark.parametrize("name", ["a.jsonl", "a.json.gz", "a.csv", "a.parquet"])
def test_a_table_is_no_file_of_columns(model, tmp_path, name):
    config = load(model, tmp_path, "a\tO")
    (tmp_path / name).write_text("a\tO")
    with pytest.raises(BadInput, match=f"{tmp_path}/{name}: "):
        conll.load(config, tmp_path / name)


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_are_read(model, tmp_path, name):
    """Blank lines may have blanks, line ends and byte order marks; empty words are words."""
    text, first = COLUMNS[name]
    config = load(model, tmp_path, text)
    found = read(config, tmp_path)
    assert found[0] == first and [words for _, words, _ in found[1:]] == [["x"]]
    assert token_classification.names(config, conll.load(config, tmp_path / "train.txt")) == [
        "O",
        "B-a",
    ]


def test_other_columns_and_none(model, tmp_path):
    config = load(model, tmp_path, "1 a NN X\n2 b NN Y\n", **{"task.columns": "(1, 2)"})
    assert read(config, tmp_path) == [("1", ["a", "b"], ["NN", "NN"])]
    config = load(model, tmp_path, "a\nb\n")
    assert read(config, tmp_path) == [("1", ["a", "b"], None)]


LINES = {
    "indented blanks": ("\t a X\n \n\t b O\n", [["a"], ["b"]]),
    "a tag": ("a O\n# X\n#a O\n", [["a", "#", "#a"]]),
    "some indented": ("a O\n\tb O\n c O\n", [["a", "b", "c"]]),
    "blanks behind": ("a\tO \nb\tO\t\n\n", [["a", "b"]]),
    "comments between tabs": ("# c\na\tO\n# d\n#\tO\n", [["a", "#"]]),
    "tags alone": ("#a O\n#b O\n", [["#a", "#b"]]),
    "comments": ("#begin document (a); part 0\na O\n# text = b\nb X\n", [["a", "b"]]),
}


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
def test_comments_and_margins_are_no_words(model, tmp_path, name, ends):
    text, words = LINES[name]
    config = load(model, tmp_path, text.replace("\n", ends))
    assert [words for _, words, _ in read(config, tmp_path)] == words


def test_conllu_is_read(model, tmp_path):
    """Without comments, and without the lines of several words and of none."""
    rows = [("1-2", "du", "_"), ("1", "de", "ADP"), ("2", "le", "DET"), ("2.1", "x", "X")]
    rows = ["\t".join([number, form, "_", tag, *"_" * 6]) for number, form, tag in rows]
    text = "\n".join(["# sent_id = 1", "# text = du", *rows, ""])
    config = load(model, tmp_path, text, **{"task.columns": "1,3"})
    assert read(config, tmp_path) == [("4", ["de", "le"], ["ADP", "DET"])]


def test_numbers_and_blanks_are_words_of_other_files(model, tmp_path):
    """The columns are counted from the end, the first one numbers the words, or a word is a blank of no width."""
    config = load(model, tmp_path, "3.5 O\n2019-20 X\n", **{"task.columns": "-2,-1"})
    assert read(config, tmp_path) == [("1", ["3.5", "2019-20"], ["O", "X"])]
    config = load(model, tmp_path, "1-1\t0-2\tab\tX\n", **{"task.columns": "2,3"})
    assert read(config, tmp_path) == [("1", ["ab"], ["X"])]
    config = load(model, tmp_path, "\xa0 O\nb\xa0 X\n")
    assert read(config, tmp_path) == [("1", ["\xa0", "b\xa0"], ["O", "X"])]


@pytest.mark.parametrize(
    "train, dev, named",
    [
        ("a O\nNew York X\n", "c\tO", ("train.txt:2", "3")),
        ("a\tO\n\nb\tB-y\n", "c\tO\nd\tB-x\n", ("dev.txt:2", "B-x")),
        ("a\tO\n\nb\tO\n", "c\tO\n", ("train.txt", "'O'")),
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
        conll.load(config, "hf:ner:train")
    for columns in ("(0,)", "('a', 'b')"):
        with pytest.raises(BadInput, match="task.columns"):
            load(model, tmp_path, "a O", **{"task.columns": columns})


# {scheme: letters of entities of 1, 2 and 3 words}
SCHEMES = {
    IOB1: ("I", "II", "III"),
    IOB2: ("B", "BI", "BII"),
    IOE2: ("E", "IE", "IIE"),
    IOBES: ("S", "BE", "BIE"),
    BILOU: ("U", "BL", "BIL"),
}
SPELLINGS = {"B_PER": "{0}_{1}", "PER-B": "{1}-{0}", "B:PER": "{0}:{1}", "B-PER": "{0}-{1}"}


def random_labels(scheme, spelling: str) -> list[list[str]]:
    """Returns the labels of sentences of 12 words in a scheme of seqeval."""
    draw, sentences = np.random.default_rng(len(spelling)), []
    for _ in range(60):
        labels, before = [], ""
        while len(labels) < 12:
            kind, size = draw.choice(["", "PER", "LOC"]), draw.integers(3)
            letters = "O" if not kind else SCHEMES[scheme][size]
            if scheme == IOB1 and kind and kind == before:
                letters = "B" + letters[1:]
            labels += [spelling.format(letter, kind) if kind else "O" for letter in letters]
            before = kind
        sentences.append(labels if len(labels) == 12 else ["O"] * 12)
    return sentences


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.__name__)
def test_entities_are_those_of_their_scheme(scheme, spelling):
    """As seqeval finds them in its strict mode, which reads a single spelling."""
    usual = random_labels(scheme, "{0}-{1}")
    spelt = random_labels(scheme, SPELLINGS[spelling])
    names = tuple({label.lower() for labels in spelt for label in labels})
    found = entity_labels.spellings(names)
    read = [[found[label.lower()] for label in labels] for labels in spelt]
    kinds = {(kind.upper(), *places) for kind, *places in get_entities(read)}
    expected = Entities(usual, scheme).entities
    offset = 13  # of a sentence and what parts it from the next one
    assert kinds == {
        (each.tag, row * offset + each.start, row * offset + each.end - 1)
        for row, entities in enumerate(expected)
        for each in entities
    }
    assert len(kinds) > 50 and not entity_labels.are_tags(names)


@pytest.mark.parametrize(
    "names, is_of_entities",
    [
        (("O", "PER", "ORG"), True),
        (("o", "per"), True),
        (("O", "B", "I"), True),
        (("O", "B-a", "I-a", "MISC"), True),
        (("0", "B-a", "I-a"), True),
        (("B-a", "I-a", "OTHER"), True),
        (("NOUN", "VERB", "OTHER"), False),
        (("N", "V", "O", "B", "E"), False),  # a pronoun may be O
        (("-LRB-", "NN-I", "VB"), False),
    ],
)
def test_tags_are_told_from_entities(names, is_of_entities):
    assert entity_labels.are_tags(names) != is_of_entities
    found = entity_labels.spellings(names)
    assert len({found[name] for name in names}) == len(names)


def test_labels_of_bmewo_and_of_words_outside_are_read():
    assert entity_labels.spellings(("OTHER", "B-a", "M-a", "E-a", "W-a")) == {
        "OTHER": "O",
        "B-a": "B-a",
        "M-a": "I-a",
        "E-a": "E-a",
        "W-a": "S-a",
    }


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


def pieces_of(tokenizer, sentence) -> tuple[list[int], list[str | None]]:
    """Returns the ids of a sentence, and the label of each, None for a piece that is not a word's first one."""
    pieces, labels = [], []
    for word, label in sentence:
        ids = tokenizer.encode([word])[0] or [tokenizer.unk]
        pieces += ids
        labels += [label] + [None] * (len(ids) - 1)
    return pieces, labels


def test_the_first_piece_of_a_word_has_its_label(world):
    """In every row of its sentence; the rows of a long one overlap by half."""
    made, config, store, dataset, phase = world
    tokenizer = tokenizers.load(store.path / "tokenizer")
    rows, batch = labelled.batch_of(dataset, phase)
    assert (dataset.sizes(rows) == (batch["sequence_ids"] > 0).sum(1)).all()
    room, expected = LENGTH - 2, []
    for number, sentence in enumerate(made):
        pieces, labels = pieces_of(tokenizer, sentence)
        last = max(0, len(pieces) - room)
        for first in range(0, last + room // 2, room // 2):
            row = pieces[first : first + room], labels[first : first + room]
            expected.append((number, *row))
    assert [each[0] for each in expected] == dataset.group(rows).tolist() and len(rows) > len(made)
    for row, (_, pieces, labels) in enumerate(expected):
        pieces, labels = [tokenizer.cls, *pieces, tokenizer.sep], [None, *labels, None]
        size = len(pieces)
        assert batch["tokens"][row, :size].tolist() == pieces
        weights = batch["label_weights"][row]
        assert weights[:size].tolist() == [label is not None for label in labels]
        assert not weights[size:].any() and not batch["sequence_ids"][row, size:].any()
        found = batch["targets"][row][weights > 0]
        assert [config.task.labels[i] for i in found] == [label for label in labels if label]


def test_scores_equal_a_direct_computation(world):
    """Over all words of the file, from rows in any order; where two rows overlap, their logits are added."""
    made, config, store, dataset, phase = world
    tokenizer = tokenizers.load(store.path / "tokenizer")
    rows = dataset.rows(phase, "train", 0)[::-1]
    names, room = config.task.labels, LENGTH - 2
    logits = np.random.default_rng(0).normal(size=(len(rows), LENGTH, len(names)))
    numbers, truth, said = dataset.group(rows), [], []
    for number, sentence in enumerate(made):
        own = np.flatnonzero(numbers == number)[::-1]  # its rows, from its beginning on
        firsts = np.arange(len(own)) * room // 2
        _, labels = pieces_of(tokenizer, sentence)
        truth.append([label for _, label in sentence])
        said.append([])
        for place in np.flatnonzero(labels):
            has_place = (firsts <= place) & (place < firsts + room)
            sums = logits[own[has_place], 1 + place - firsts[has_place]].sum(axis=0)
            said[-1].append(names[sums.argmax()])
    functions = {"f1": f1_score, "precision": precision_score, "recall": recall_score}
    functions["accuracy"] = accuracy_score
    found = token_classification.decode(config, store, "train", {"label_logits": logits}, rows)
    assert [each["prediction"] for each in found] == said
    scores = dataset.score("train", {"label_logits": logits}, rows)
    words = sum(truth, [])
    expected = {name: function(truth, said) for name, function in functions.items()}
    expected["majority"] = max(map(words.count, words)) / len(words)
    expected["over_majority"] = expected["accuracy"] - expected["majority"]
    assert scores == pytest.approx(expected)
    review = dataset.review("train", {"label_logits": logits}, rows, 3)
    (_, *heads), *counts = review["tables"]["confusions"]
    assert heads == [*names] == [row[0] for row in counts]
    pairs = [*zip(words, sum(said, []), strict=True)]
    for name, *numbers in counts:
        assert numbers == [pairs.count((name, other)) for other in names]
    texts, (*_, part) = zip(*review["samples"], strict=True)
    assert (part["guess"], part["target"]) == (" ".join(said[2]), " ".join(truth[2]))
    assert len(texts) == 3


@pytest.mark.parametrize("labels", [("PER", "O"), ("o", "b_x", "i_x"), ("NOUN", "VERB", "O2")])
def test_metrics_follow_the_labels(world, model, tmp_path, labels):
    """The F1 of entities is no longer 1 if all of them are wrong; tags have the scores of scikit-learn."""
    rows = [labels[number % len(labels)] for number in range(12)]
    text = "".join(f"{word} {label}\n" for word, label in zip(WORDS, rows, strict=False))
    config, _, dataset, phase = labelled.resolve(load(model, tmp_path, text, text))
    names, (chosen, batch) = config.task.labels, labelled.batch_of(dataset, phase)
    said = (batch["targets"] + 1) % len(names)
    found = dataset.score("dev", {"label_logits": np.eye(len(names))[said]}, chosen)
    wrong = [names[(names.index(label) + 1) % len(names)] for label in rows]
    expected = dict(accuracy=0, macro_f1=metrics.f1_score(rows, wrong, average="macro"))
    if "O2" not in labels:
        expected = dict.fromkeys(["f1", "precision", "recall", "accuracy"], 0)
    assert found.pop("majority") == -found.pop("over_majority") == 1 / len(labels)
    assert found == expected
    scheme = dataset.survey(phase).text.partition("labels are read as ")[2]
    assert ("tags" in scheme) == ("O2" in labels) and ("B-x" in scheme) == ("b_x" in labels)


@pytest.mark.parametrize("kind", ["wordpiece", "unigram", "byte_bpe"])
def test_words_have_the_pieces_that_they_have_within_a_text(model, tmp_path, kind):
    tokenizer = tokenizers.train(kind, PROSE, {"byte_bpe": 300}.get(kind, 200), True)
    words = PROSE[0].replace(",", "").split()
    sentence = Example("", ["", *words], None)
    made = token_classification.encode(load(model, tmp_path, "a O"), tokenizer, [sentence], ["O"])
    ((ids,),) = made.texts
    assert ids[1:] == tokenizer.encode([" " + " ".join(words)])[0]
    assert (made.arrays["targets"] >= 0).sum() == 1 + len(words)


@pytest.mark.full
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

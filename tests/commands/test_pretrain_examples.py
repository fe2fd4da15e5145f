"""`prepare` and `pretrain` on examples, from random weights: a vocabulary of their own texts, or a given one."""

import json
import signal

import numpy as np
import pytest
from kits import labelled, runs
from kits.malformed_inputs import refused
from kits.small import overrides

from bert_jax import config as configs
from bert_jax.cli import main
from bert_jax.convert import finetuning
from bert_jax.data import store as stores
from bert_jax.evaluate import evaluate_run
from bert_jax.inference import predict
from bert_jax.tasks.supervised import epochs
from bert_jax.tokenizers import tokenizer as tokenizers

KEYS = labelled.KEYS | {
    "tokenizer.size": 120,
    "model.layers": 1,
    "model.width": 32,
    "model.heads": 4,
    "phases.main.length": 16,
    "model.max_length": 16,
    "task.epochs": 6.0,
    "optimizer.learning_rate": 3e-3,
    "checkpoint.every": 20,
}


def write(directory) -> None:
    """Writes train.tsv and dev.tsv, whose texts have words of one half of the list or of the other."""
    for seed, (name, number) in enumerate({"train": 160, "dev": 40}.items()):
        labelled.write_tsv(directory / f"{name}.tsv", [*zip(*examples(number, seed), strict=True)])


def examples(number: int, seed: int) -> tuple[list[str], list[str]]:
    """Returns texts of 1 to 8 words, and their labels."""
    draw = np.random.default_rng(seed)
    labels = draw.choice(["early", "late"], number)
    texts = []
    for label in labels:
        half = labelled.WORDS[:20] if label == "early" else labelled.WORDS[20:40]
        texts.append(" ".join(draw.choice(half, draw.integers(1, 9))))
    return texts, labels.tolist()


def arguments(name: str, settings: dict, *more, config="glue:sst2", **changes) -> list[str]:
    keys = [f"--config.{key}" for key in overrides(KEYS | settings | changes)]
    return [name, "--config", config, *keys, *map(str, more)]


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    """The keys of short and long texts, and of a store that is prepared."""
    directory = tmp_path_factory.mktemp("examples")
    write(directory)
    keys = {"task.data": directory, "store": directory / "store"}
    assert main(arguments("prepare", keys)) == 0
    return keys


@pytest.fixture(scope="module")
def trained(settings, tmp_path_factory):
    """The workdir of a run that was stopped and resumed."""
    workdir = tmp_path_factory.mktemp("trained") / "run"
    command = arguments("pretrain", settings, "--workdir", workdir)
    with pytest.MonkeyPatch.context() as patch:
        runs.signal_at(patch, 30, signal.SIGTERM)
        assert main(command) == 75
    assert main(command) == 0
    return workdir


def test_the_report_is_that_of_the_store(settings, capsys):
    """Its numbers are counted from the files; it is printed again for a store that exists."""
    capsys.readouterr()
    assert main(arguments("prepare", settings, "--json", "-")) == 0
    values = json.loads(capsys.readouterr().out)
    words = tokenizers.load(settings["store"] / "tokenizer")
    ids = words.encode(examples(160, 0)[0])
    tokens = sum(map(len, ids))
    assert values["splits"]["train"] == {"documents": 160, "sentences": 160, "tokens": tokens}
    labels = examples(160, 0)[1]
    assert values["labels"] == {name: labels.count(name) for name in ("early", "late")}
    assert values["longest_text"] == max(map(len, ids))
    assert values["vocabulary"] == words.size <= 120


def test_the_vocabulary_is_trained_on_the_training_split(settings, tmp_path):
    """Words of `dev` alone have no pieces of their own."""
    text = (settings["task.data"] / "train.tsv").read_text()
    (tmp_path / "train.tsv").write_text(text + "zzyzx\tlate\n" * 50)
    (tmp_path / "dev.tsv").write_text(text + "qqxqq\tlate\n" * 50)
    changes = {"task.data": tmp_path, "store": tmp_path / "store", "tokenizer.size": 200}
    assert main(arguments("prepare", settings | changes)) == 0
    pieces = tokenizers.load(tmp_path / "store/tokenizer").pieces
    assert "zzyzx" in pieces and "qqxqq" not in pieces


@pytest.mark.slow
def test_it_learns(trained):
    dev = json.loads((trained / "summary.json").read_text())["dev"]
    losses = [line["loss"] for line in runs.lines(trained) if line["split"] == "train"]
    assert losses[-1] < losses[0] - 0.2 and dev["accuracy"] > 0.9
    config = configs.load(str(trained / "config.json"))
    assert config.task.labels == ("early", "late") and config.phases.main.steps == 60
    assert config.schedule.warmup == 6 and config.init_from == ""


@pytest.mark.full
def test_undisturbed_it_has_the_same_bits(settings, trained, tmp_path):
    assert main(arguments("pretrain", settings, "--workdir", tmp_path / "run")) == 0
    runs.assert_same_bits(runs.params(tmp_path / "run"), runs.params(trained))


@pytest.mark.slow
def test_commands_use_it_as_a_fine_tuned_model(settings, trained, tmp_path):
    texts, expected = examples(20, 7)
    results, _ = predict.predict(trained, texts)
    hits = [result["prediction"] == name for result, name in zip(results, expected, strict=True)]
    assert np.mean(hits) > 0.8
    last = runs.lines(trained)[-1]
    assert evaluate_run(trained)["accuracy"] == last["accuracy"]
    assert main(["export", "--workdir", str(trained), "--output", str(tmp_path / "exported")]) == 0
    again, _ = predict.predict(tmp_path / "exported", texts)
    assert [result["prediction"] for result in again] == [each["prediction"] for each in results]
    keys = {"init_from": trained, "store": tmp_path / "store"}
    config = finetuning.resolve(labelled.load("glue:sst2", KEYS | settings | keys))
    assert config.task.labels == ("early", "late")


def test_a_given_vocabulary(settings, tmp_path):
    """Its ids are those of the file; the store is known by its content, whatever its path."""
    words = labelled.tokenizer()
    words.save(tmp_path / "words")
    path = tmp_path / "words" / words.file
    changes = {"store": tmp_path / "store", "tokenizer.path": path}
    assert main(arguments("prepare", settings | changes)) == 0
    store = stores.open_store(tmp_path / "store")
    ids = words.encode(examples(160, 0)[0])
    assert store.splits["train"].tokens.tolist() == [number for text in ids for number in text]
    other = path.rename(tmp_path / "vocab.txt")
    assert main(arguments("prepare", settings | changes | {"tokenizer.path": other})) == 0
    assert "tokenizer.path" in refused(*arguments("prepare", settings | {"tokenizer.path": other}))
    # The vocabulary that a store has is also the one that a config names by its file.
    own = settings["store"] / "tokenizer/vocab.txt"
    assert main(arguments("prepare", settings | {"tokenizer.path": own})) == 0


@pytest.mark.parametrize(
    "changes, named",
    [
        ({"tokenizer.size": 121}, "config.tokenizer.size: built with 120"),
        ({"tokenizer.kind": "byte_bpe"}, "config.tokenizer.kind: built with 'wordpiece'"),
        ({"tokenizer.path": "none.txt"}, "none.txt"),
        ({"phases.main.steps": 1}, "config.phases.main.steps: task.epochs"),
        ({"task.labels": "late,other"}, "config.task.labels"),
        ({"store": "missing", "tokenizer.kind": "unigram", "tokenizer.size": 9000}, "tokenizer.size=9000"),
        ({"store": "missing", "tokenizer.path": "none.txt"}, "none.txt"),
        ({"store": "missing", "task.data": "nowhere"}, "config.task.data=nowhere"),
        ({"store": "missing", "init_from": "nothing"}, "nothing"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(settings, tmp_path, monkeypatch, changes, named):
    monkeypatch.chdir(tmp_path)
    assert named in refused(*arguments("pretrain", settings | changes, "--workdir", "run"))
    assert not [path for path in tmp_path.rglob("*") if "lock" not in path.name]


def test_examples_in_both_splits_are_counted_in_each_run(settings, tmp_path, capsys):
    """Whatever their labels."""
    lines = (settings["task.data"] / "train.tsv").read_text().splitlines()
    text = lines[1].partition("\t")[0]
    for name, rows in (("train", lines), ("dev", [lines[0], *[f"{text}\tlate"] * 2, "new\tlate"])):
        (tmp_path / f"{name}.tsv").write_text("\n".join(rows))
    keys = {"task.data": tmp_path, "store": tmp_path / "store"}
    config = epochs.resolve(configs.load("glue:sst2", overrides(KEYS | settings | keys)))
    assert "dev: 2 " in capsys.readouterr().err
    assert config.task.labels == ("early", "late")


def test_a_store_needs_a_name_and_fine_tuning_a_model(settings, tmp_path):
    assert "config.store=''" in refused(*arguments("prepare", settings | {"store": ""}))
    command = arguments("finetune", settings, "--workdir", tmp_path / "run")
    assert refused(*command).startswith("config.init_from=''")


def test_a_store_of_a_model_has_no_vocabulary_of_its_own(settings, tmp_path):
    """Random weights on it need `tokenizer.path`; fine-tuning opens a store with the same tokenizer."""
    model = labelled.start(tmp_path)
    keys = settings | {"init_from": model, "store": tmp_path / "store"}
    own = {key: value for key, value in keys.items() if key != "init_from"}
    assert main(arguments("prepare", keys)) == 0
    assert "tokenizer.kind" in refused(*arguments("prepare", own))
    path = tmp_path / "store/tokenizer/vocab.txt"
    assert main(arguments("prepare", own | {"tokenizer.path": path})) == 0


@pytest.mark.full
def test_the_translation_demo_learns(tmp_path):
    """A part of its model, for a part of its steps."""
    keys = {
        "store": tmp_path / "store",
        "compilation_cache": "",
        "model.layers": 1,
        "model.decoder_layers": 1,
        "model.width": 64,
        "phases.main.steps": 60,
        "phases.main.length": 32,
        "optimizer.learning_rate": 5e-3,
        "schedule.warmup": 20,
        "log.every": 20,
        "checkpoint.every": 60,
        "evaluate.every": 0,
        "evaluate.rows": 16,
    }
    command = ["pretrain", "--config", "translate_demo", "--workdir", str(tmp_path / "run")]
    assert main([*command, *(f"--config.{key}" for key in overrides(keys))]) == 0
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert summary["dev"]["target_nll"] < summary["unigram_entropy"] - 1

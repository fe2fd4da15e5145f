"""GLUE in its official layout, on fixtures: the training data of QQP, MNLI and QNLI were never at hand."""

import json

import pytest
from kits import labelled

from bert_jax import config
from bert_jax.cli import main
from bert_jax.commands import finetune
from bert_jax.tasks.supervised import examples

NLI = "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\tsentence2_parse"
NLI += "\tsentence1:a\tsentence2:b\tlabel1\tgold_label:y"
STS = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1:a\tsentence2:b\tscore:y"
PAIR = "index\tsentence1:a\tsentence2:b\tlabel:y"
BINARY, ENTAILS = ("0", "1"), ("entailment", "not_entailment")
# {task: (directory, header of the official files, labels)}; the columns a, b and label are marked in the header.
LAYOUTS = {
    "cola": ("CoLA", "", BINARY),
    "sst2": ("SST-2", "sentence:a\tlabel:y", BINARY),
    "mrpc": ("MRPC", "Quality:y\t#1 ID\t#2 ID\t#1 String:a\t#2 String:b", BINARY),
    "stsb": ("STS-B", STS, ("0.5", "4.25")),
    "qqp": ("QQP", "id\tqid1\tqid2\tquestion1:a\tquestion2:b\tis_duplicate:y", BINARY),
    "mnli": ("MNLI", NLI, ("contradiction", "entailment", "neutral")),
    "qnli": ("QNLI", "index\tquestion:a\tsentence:b\tlabel:y", ENTAILS),
    "rte": ("RTE", PAIR, ENTAILS),
    "wnli": ("WNLI", PAIR, BINARY),
}
DEVS = {"mnli": ["dev_matched", "dev_mismatched"]}


def write(path, header: str, labels, rows: int = 12) -> None:
    """Writes rows of two texts with a quote and a label; CoLA has no header."""
    columns = [name.partition(":")[::2] for name in header.split("\t")]
    lines = ["\t".join(name for name, _ in columns)] if header else []
    for row, (a, b) in enumerate(zip(labelled.texts(rows), labelled.texts(rows, 1), strict=True)):
        values = {"a": f'"{a}', "b": b, "y": labels[row % len(labels)], "": "x"}
        values = [values[mark] for _, mark in columns] if header else ["gj04", values["y"], "", a]
        lines.append("\t".join(values))
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A directory with glue/ and a model to start from."""
    directory = tmp_path_factory.mktemp("glue")
    labelled.start(directory)
    for task, (name, header, labels) in LAYOUTS.items():
        (directory / "glue" / name).mkdir(parents=True)
        for file in ("train", *DEVS.get(task, ["dev"])):
            write(directory / "glue" / name / f"{file}.tsv", header, labels)
    return directory


@pytest.mark.parametrize("name", LAYOUTS)
def test_files_have_their_texts_and_labels(world, monkeypatch, name):
    monkeypatch.chdir(world)
    _, header, labels = LAYOUTS[name]
    parts, _ = examples.read(labelled.load(f"glue:{name}", {}))
    assert [*parts] == ["train", *DEVS.get(name, ["dev"])]
    first, second = labelled.texts(12), labelled.texts(12, 1)
    for part in parts.values():
        texts = [
            [f'"{a}', b] if ":b" in header else [f'"{a}' if header else a]
            for a, b in zip(first, second, strict=True)
        ]
        assert [example.texts for example in part] == texts
        assert [example.label for example in part] == [labels[i % len(labels)] for i in range(12)]


def test_all_are_the_tasks_of_the_config():
    found = finetune.trials("glue:all", [], [])
    assert [trial.task for trial in found] == [*LAYOUTS]
    assert [trial.config for trial in found] == [config.load(f"glue:{n}") for n in LAYOUTS]


@pytest.mark.full
def test_several_tasks_run_in_one_command(world, monkeypatch, tmp_path):
    """And the predictions for a test file without labels have the format of the GLUE server."""
    monkeypatch.chdir(world)
    keys = {"init_from": "start", "task.epochs": 0.1, "phases.main.length": 8}
    command = labelled.command(keys, tmp_path / "run")
    command[command.index("glue:sst2")] = "glue:mnli,stsb"
    assert main([*command, "--json", str(tmp_path / "table.json")]) == 0
    values = json.loads((tmp_path / "table.json").read_text())
    assert set(values) == {"mnli", "stsb"}
    splits = "dev_matched", "dev_mismatched"
    names = {f"{split} {name}" for split in splits for name in ("accuracy", "majority")}
    assert set(values["mnli"]) == names
    for name in ("mnli", "stsb"):
        directory, header, labels = LAYOUTS[name]
        write(tmp_path / "test.tsv", header.rpartition("\t")[0], labels)
        options = "--input", str(tmp_path / "test.tsv"), "--output", str(tmp_path / f"{name}.tsv")
        assert main(["predict", "--model", str(tmp_path / "run" / name), *options]) == 0
        head, *lines = (tmp_path / f"{name}.tsv").read_text().splitlines()
        indexes, said = zip(*(line.split("\t") for line in lines), strict=True)
        assert head == "index\tprediction" and indexes == tuple(map(str, range(12)))
        assert [*map(float, said)] if name == "stsb" else set(said) <= set(labels)

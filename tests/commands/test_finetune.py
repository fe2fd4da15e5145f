"""`finetune` and `predict`, end to end: a small model learns a task, is killed and resumed, and predicts."""

import json
import shutil
import signal

import numpy as np
import pytest
from kits import faulty_program, labelled, processes, runs
from kits.malformed_inputs import refused
from kits.small import overrides

from bert_jax import config as configs
from bert_jax.cli import main
from bert_jax.convert import finetuning, open_model
from bert_jax.data import store as stores
from bert_jax.errors import BadInput
from bert_jax.inference import predict
from bert_jax.planning import plan


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """(settings, workdir) of a run on short and long texts."""
    directory = tmp_path_factory.mktemp("tuned")
    settings = labelled.settings(directory)
    labelled.tune(labelled.load("glue:sst2", settings), directory / "run")
    return settings, directory / "run"


@pytest.mark.slow
def test_it_learns(tuned):
    dev = json.loads((tuned[1] / "summary.json").read_text())["dev"]
    assert dev["accuracy"] > 0.9 and dev["label_loss"] < 0.4
    assert dev["majority"] < 0.8
    assert dev["over_majority"] == pytest.approx(dev["accuracy"] - dev["majority"])
    saved = json.loads((tuned[1] / "config.json").read_text())
    assert saved["task"]["labels"] == ["long", "short"] and saved["phases"]["main"]["steps"] == 120
    assert saved["schedule"]["warmup"] == 12


@pytest.mark.slow
def test_random_weights_have_the_network_of_the_model(tuned, tmp_path, capsys):
    """And its tokenizer, on the same store; the same command resumes."""
    settings = tuned[0] | {"task.epochs": 0.1, "optimizer.learning_rate": 0.0}
    command = labelled.command(settings | {"random_weights": True}, tmp_path / "run")
    assert main(command) == 0 and main(command) == 0
    assert "already done" in capsys.readouterr().out
    source, random = (
        open_model.open_model(path) for path in (settings["init_from"], tmp_path / "run")
    )
    assert random.tokenizer.fingerprint == source.tokenizer.fingerprint
    assert random.config.model.width == source.config.model.width == 32
    assert "imported" not in random.info
    words = [model.params["network"]["embedder"]["words"] for model in (source, random)]
    assert abs(np.corrcoef(*map(np.ravel, words))[0, 1]) < 0.1


@pytest.mark.parametrize("every", [(50, 500), (50, 100), (7, 14), (1, 1)])
@pytest.mark.parametrize("average, steps", [(1, 60), (2, 60), (3, 60), (3, 61), (5, 200), (3, 2)])
def test_checkpoints_are_as_frequent_as_their_average_needs(every, average, steps):
    log, each = every
    config = configs.load("glue", [f"log.every={log}", f"checkpoint.every={each}"])
    config.checkpoint.update(average=average, keep=9)
    config.phases.main.steps = steps
    config.task.epochs = 0.0
    configs.adapt(config, config, [], print)
    configs.check(config)
    assert -(-steps // config.checkpoint.every) >= min(average, steps)
    if average == 1 or each * average <= steps:
        assert (config.log.every, config.checkpoint.every) == every


@pytest.mark.full
def test_killed_and_resumed_it_has_the_same_bits(tuned, tmp_path):
    settings, undisturbed = tuned
    fault = {faulty_program.FAULT: "0:step:45:kill"}
    command = labelled.command(settings, tmp_path / "run")
    (ended,) = processes.run(command, tmp_path, 1, 8, **fault)
    assert ended.code == -signal.SIGKILL, ended
    labelled.tune(labelled.load("glue:sst2", settings), tmp_path / "run")
    runs.assert_same_bits(runs.params(tmp_path / "run"), runs.params(undisturbed))
    assert runs.lines(tmp_path / "run")[-1]["accuracy"] == runs.lines(undisturbed)[-1]["accuracy"]


# Keys that change neither the parameters nor the metrics of the last step.
NEUTRAL = """
    train.tokens_per_device=1 evaluate.batch=5
    train.tokens_per_device=64 evaluate.every=4
    train.tokens_per_device=16 mesh.tensor=4 mesh.fsdp=2
    train.micro_batches=2 mesh.tensor=2
    train.remat=full evaluate.batch=100 mesh.data=8
    train.remat=attention evaluate.every=3 checkpoint.compare=1
    checkpoint.compare=0 checkpoint.keep=1 mesh.fsdp=2
    checkpoint.keep_every=8 evaluate.patience=9 evaluate.every=4
    checkpoint.average=5 checkpoint.keep=5
    log.every=50 checkpoint.every=100 checkpoint.average=3
""".strip().splitlines()


@pytest.fixture(scope="module")
def short(tuned, tmp_path_factory):
    """(settings, last line) of a run of 12 steps."""
    settings = tuned[0] | {"task.epochs": 1.2, "log.every": 2, "checkpoint.every": 4}
    settings["train.tokens_per_device"] = 0
    directory = tmp_path_factory.mktemp("short")
    return settings, labelled.tune(labelled.load("glue:sst2", settings), directory / "run")


@pytest.mark.full
@pytest.mark.parametrize("keys", NEUTRAL)
def test_keys_of_the_machine_do_not_change_the_result(short, tmp_path, keys):
    """And all commands open the step that the summary names."""
    settings, expected = short
    changes = dict(key.split("=") for key in keys.split())
    last = labelled.tune(labelled.load("glue:sst2", settings | changes), tmp_path / "run")
    assert last["step"] == expected["step"] == 12 and last["accuracy"] == expected["accuracy"]
    assert last["loss"] == pytest.approx(expected["loss"], rel=1e-5)
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    best = summary["best"].get("step", summary["steps"])
    assert open_model.open_model(tmp_path / "run").step == best


@pytest.mark.full
def test_two_processes_have_the_numbers_of_one(tuned, tmp_path):
    settings, undisturbed = tuned
    ended = processes.run(labelled.command(settings, tmp_path / "run"), tmp_path, 2, 4)
    assert [process.code for process in ended] == [0, 0], ended
    runs.assert_same_run(tmp_path / "run", undisturbed, "dev")
    assert runs.lines(tmp_path / "run")[-1]["accuracy"] == runs.lines(undisturbed)[-1]["accuracy"]


@pytest.mark.slow
def test_the_store_may_be_prepared_first(tuned, tmp_path, capsys):
    """As for several processes; it is that of the run."""
    _, *command = labelled.command(tuned[0] | {"store": tmp_path / "store"}, "")[:-2]
    assert main(["prepare", *command]) == 0 and "prepared" in capsys.readouterr().out
    one, other = (stores.open_store(path) for path in (tmp_path / "store", tuned[0]["store"]))
    assert one.fingerprint == other.fingerprint


def test_rows_are_as_long_as_the_model_takes(tmp_path):
    keys = [f"model.max_length={labelled.LENGTH}", "model.layers=1", "task.pair_task=nsp"]
    runs.make_run(tmp_path / "model", *keys, words=labelled.tokenizer())
    data = labelled.sentences(tmp_path / "data", 8, 4)
    settings = overrides(labelled.places(tmp_path / "model", data))
    config = finetuning.resolve(configs.load("glue:sst2", settings), settings)
    assert config.phases.main.length == labelled.LENGTH
    settings.append("phases.main.length=64")
    with pytest.raises(BadInput, match=f"phases.main.length=64.*={labelled.LENGTH}"):
        finetuning.resolve(configs.load("glue:sst2", settings), settings)
    labelled.sentences(tmp_path / "data", 9, 4)
    with pytest.raises(BadInput, match="task.data=.*other files"):
        finetuning.resolve(configs.load("glue:sst2", settings[:-1]), settings[:-1])


@pytest.mark.full
def test_seeds_and_settings_make_a_table(tuned, tmp_path, capsys):
    """All runs share a store; those that are finished are not repeated."""
    settings = tuned[0] | {"task.epochs": 0.1, "phases.main.length": 8, "store": ""}
    options = "--seeds", "2", "--json", str(tmp_path / "table.json")
    options += "--search", "optimizer.learning_rate=1e-3,1e-4"
    assert main([*labelled.command(settings, tmp_path / "run"), *options]) == 0
    values = json.loads((tmp_path / "table.json").read_text())
    printed = capsys.readouterr().out
    assert set(values) == {"learning_rate=1e-3", "learning_rate=1e-4"}
    for name, found in values.items():
        summaries = [tmp_path / f"run/{name}/seed{seed}/summary.json" for seed in (0, 1)]
        scores = [json.loads(path.read_text())["dev"]["accuracy"] for path in summaries]
        shares = [json.loads(path.read_text())["dev"]["majority"] for path in summaries]
        assert found == {"dev accuracy": scores, "dev majority": shares}
        mean, deviation = np.mean(scores), np.std(scores, ddof=1)
        assert f"| {name} | dev accuracy | {mean:.4f} | {deviation:.4f} | 2 |" in printed
    paths = sorted(tmp_path.glob("run/*/seed*/config.json"))
    configs = [json.loads(path.read_text()) for path in paths]
    assert [config["seed"] - configs[0]["seed"] for config in configs] == [0, 1, 0, 1]
    assert {config["store"] for config in configs} == {f"{tmp_path}/run.store"}


def test_a_run_that_diverges_does_not_end_a_search(tmp_path, monkeypatch, capsys):
    def diverge(config, place, *_):
        raise FloatingPointError(f"the loss of {place} is nan")

    monkeypatch.setattr("bert_jax.train.pretrain", diverge)
    command = ["finetune", "--config", "glue", "--workdir", str(tmp_path / "run")]
    assert main([*command, "--search", "optimizer.learning_rate=1e-3,1"]) == 1
    assert "=1 is nan" in capsys.readouterr().err
    assert "task.heldout" in refused(*command, "--search", "task.heldout=0.1,0.2")


@pytest.mark.slow
def test_predictions_are_those_of_the_evaluation(tuned, tmp_path, capsys):
    """On a file with labels it also prints the score; on one without, the predictions are the same, in its order."""
    data = tuned[0]["task.data"]
    model = ["predict", "--model", str(tuned[1])]
    output = ["--output", str(tmp_path / "dev.TSV")]
    assert main([*model, "--input", str(data / "dev.tsv"), *output]) == 0
    dev = json.loads((tuned[1] / "summary.json").read_text())["dev"]
    assert f"accuracy {dev['accuracy']:.6g}" in capsys.readouterr().out
    header, *found = (tmp_path / "dev.TSV").read_text().splitlines()
    rows = [line.split("\t") for line in (data / "dev.tsv").read_text().splitlines()[1:]]
    labels = [f"{index}\t{label}" for index, (_, label) in enumerate(rows)]
    right = sum(map(str.__eq__, found, labels))
    assert header == "index\tprediction" and right / len(rows) == dev["accuracy"]
    labelled.write_tsv(tmp_path / "test.tsv", [row[:1] for row in rows], "sentence")
    unlabelled, scores = predict.predict(tuned[1], tmp_path / "test.tsv")
    assert [each["prediction"] for each in unlabelled] == [line.split("\t")[1] for line in found]
    assert not scores
    (alone,), _ = predict.predict(tuned[1], [rows[3][0]])
    assert alone["probabilities"] == pytest.approx(unlabelled[3]["probabilities"], abs=1e-5)
    (replaced,), _ = predict.predict(tuned[1], ["An argument \udce9."])  # bytes that are not UTF-8
    assert replaced["text"] == "An argument \ufffd."


@pytest.mark.slow
def test_every_row_has_its_prediction(tuned, tmp_path, capsys):
    """Whether it is empty or has no label, or one that the model does not know; the others are scored."""
    rows = [("short text", "short"), ("", ""), ("a", "medium"), ("b " * 40, "short"), ("c", "")]
    lines = ["sentence\tlabel", *map("\t".join, rows[:2]), "", *map("\t".join, rows[2:])]
    (tmp_path / "new.tsv").write_text("\n".join([*lines, "", ""]))
    command = ["predict", "--model", str(tuned[1]), "--input", str(tmp_path / "new.tsv")]
    assert main([*command, "--output", str(tmp_path / "out.tsv")]) == 0
    found = [line.split("\t") for line in (tmp_path / "out.tsv").read_text().splitlines()[1:]]
    texts = [row[0] for row in [*rows[:2], ("", ""), *rows[2:]]]
    alone, _ = predict.predict(tuned[1], texts)
    assert found == [[str(n), each["prediction"]] for n, each in enumerate(alone)]
    printed, log = capsys.readouterr()
    accuracy = np.mean([found[0][1] == "short", found[4][1] == "short"])
    assert f"accuracy {accuracy:.6g}" in printed and "examples 2\n" in printed
    assert "new.tsv:5" in log and "'medium'" in log
    with open(tmp_path / "new.tsv", "a") as file:
        file.write("d\tlong\tmore\n")
    (tmp_path / "out.tsv").unlink()
    assert "new.tsv:9" in refused(*command, "--output", tmp_path / "out.tsv")
    assert not (tmp_path / "out.tsv").exists()


@pytest.mark.slow
def test_a_run_whose_data_and_model_were_moved_resumes(tuned, tmp_path, capsys):
    settings, workdir = tuned
    shutil.copytree(settings["task.data"], tmp_path / "data")
    shutil.copytree(settings["init_from"], tmp_path / "model")
    moved = {"task.data": tmp_path / "data", "init_from": tmp_path / "model"}
    moved["task.train"] = "./train.tsv"
    assert main(labelled.command(settings | moved, workdir)) == 0
    assert "already done" in capsys.readouterr().out
    labelled.sentences(tmp_path / "data", 30, 20)
    text = refused(*labelled.command(settings | moved, workdir))
    assert "config.task.data" in text


def test_pairs_need_a_second_segment(tmp_path):
    """Before the store is made."""
    keys = "task.pair_task=none", "model.type_vocabulary=1", "model.layers=1"
    runs.make_run(tmp_path / "start", *keys, words=labelled.tokenizer())
    data = labelled.sentences(tmp_path / "data", 20, 20)
    settings = labelled.places(tmp_path / "start", data) | {"task.text": "sentence,label"}
    before = sorted(tmp_path.rglob("*"))
    text = refused(*labelled.command(settings, tmp_path / "run"))
    assert "config.model.type_vocabulary=1" in text and sorted(tmp_path.rglob("*")) == before


def test_a_task_is_planned_before_its_labels_are_known(tmp_path):
    settings = {"store": tmp_path / "none", "model.layers": 1}
    lines = []
    job = plan.make_job(labelled.load("glue:sst2", settings), None, lines.append)
    assert job.work["main"]["flops_per_step"] > 0 and "config.task.labels" in " ".join(lines)
    keys = settings | {"task.labels": "a,b,c"}
    job = plan.make_job(labelled.load("glue:sst2", keys), None, lines.append)
    assert job.config.task.labels == ("a", "b", "c")
    job = plan.make_job(labelled.load("glue:stsb", settings), None, lines.append)
    assert job.config.task.labels == ()  # a number has one output
    lines.clear()
    plan.make_job(labelled.load("swag", settings), None, lines.append)  # endings are no labels
    assert not lines


@pytest.mark.full
def test_a_text_may_have_several_labels(tmp_path):
    settings = labelled.settings(tmp_path)
    for name in ("train.tsv", "dev.tsv"):
        lines = (settings["task.data"] / name).read_text().replace("long", "long,wordy")
        (settings["task.data"] / name).write_text(lines)
    keys = {"task.kind": "labels", "task.metrics": "micro_f1", "task.epochs": 0.2}
    last = labelled.tune(labelled.load("glue:sst2", settings | keys), tmp_path / "run")
    assert 0 <= last["micro_f1"] <= 1


@pytest.mark.slow
def test_bad_input_is_one_line(tuned, tmp_path):
    """It names the file, the line and the value, and writes nothing."""
    settings, workdir = tuned
    data, run = labelled.sentences(tmp_path / "data", 20, 20), tmp_path / "run"
    bad = {"task.data": data, "store": tmp_path / "store"}

    def refusal(**changes):
        return refused(*labelled.command(settings | changes, run))

    labelled.write_tsv(data / "dev.tsv", [("some words", "long"), ("other words", "medium")])
    assert f"{data}/dev.tsv:3" in (text := refusal(**bad)) and "'medium'" in text
    labelled.write_tsv(data / "dev.tsv", [])
    assert f"{data}/dev.tsv: has no rows" in refusal(**bad)
    labelled.write_tsv(data / "dev.tsv", [("some words", "long")])
    text = refusal(**bad, **{"task.label": "verdict"})
    assert "train.tsv" in text and "'verdict'" in text
    assert f"{data}/none.tsv" in refusal(**bad, **{"task.train": "none.tsv"})
    assert "init_from" in refusal(**bad, init_from="")
    assert "config.task.metrics" in refusal(**bad, **{"task.kind": "number"})
    assert "config.task.labels" in refusal(**{"task.labels": "short,long"})
    text = refusal(**bad, **{"task.kind": "labels", "objective.label_smoothing": 0.1})
    assert "smoothing" in text and not run.exists()
    demo = "finetune", "--config", "demo", "--config.init_from=x", "--workdir", run
    assert "config.task.name" in refused(*demo)
    assert "texts" in refused("predict", "--model", workdir)

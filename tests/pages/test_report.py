"""The report of runs: what it says is what their files say, and its charts are valid for Vega-Lite."""

import json
import re

import numpy as np
import pytest
import vl_convert
from kits.malformed_inputs import refused
from kits.small import small_config
from pages.test_html import EVIL, Tags

from bert_jax import config as configs
from bert_jax.cli import main
from bert_jax.pages import charts, history, report
from bert_jax.runs import metrics_file, workdir

SHARED = {"seconds": 50.0, "step_seconds": 10.0, "input_seconds": 5.0, "tokens_per_second": 7.0}
# A run that is killed after step 20 and goes on from step 10, an hour later.
STARTS = [
    {"step": 0, "time": 1000.0, "compile_seconds": 100.0},
    {"step": 10, "time": 5000.0, "compile_seconds": 20.0},
]
TIMES = {5: 1050.0, 10: 1100.0, 15: 5050.0, 20: 5100.0, 25: 5150.0, 30: 5200.0}


def write(directory, *changes, lines=(), **info):
    """Writes the files of a run in two phases, of steps 0 to 20 and 20 to 30."""
    directory.mkdir()
    config = small_config("phases.main.steps=20", *changes)
    with config.unlocked():
        config.phases.late = config.phases.main.copy_and_resolve_references()
        config.phases.late.steps = 10
        config.phase_order = ("main", "late")
    configs.save(config, directory / "config.json")
    values = {"parameters": 1234, "unigram_entropy": 3.5, "starts": STARTS, "devices": ["cpu"]}
    workdir.write_info(directory, values | info)
    workdir.write_status(directory, "done", step=30, steps=30, progress=workdir.stamp())
    lines = lines or [*metrics()]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (directory / "metrics.jsonl").write_text(text + '{"step": 35, "split": "tra')
    return directory


def metrics(loss=5.0):
    for step, time in TIMES.items():
        values = {"loss": loss - step / 10, "skipped": 0.0, "spikes": 0.2 * (step == 15)}
        yield {"step": step, "split": "train", "time": time, **SHARED, **values}
    line = {"step": 30, "split": "heldout", "time": 5230.0, "seconds": 25.0}
    yield line | {"loss": 2.5, "seen_loss": 2.0, "headline": "seen_loss 2.00, 1.50 nats under"}


def read(directory):
    with workdir.opened(directory) as run:
        return history.read(run)


def specs(page: str) -> list[dict]:
    """Returns the charts of a page, which Vega-Lite accepts."""
    values = json.loads(re.search(r"const charts = (.*);\n", page)[1]).values()
    for spec in values:
        vl_convert.vegalite_to_vega(spec)
    return [*values]


def points(spec: dict) -> list[dict]:
    """Returns the values of the layer of lines."""
    (layer,) = [each for each in spec["layer"] if each["mark"]["type"] == "line"]
    return layer["data"]["values"]


def test_the_time_of_an_interrupted_run_is_accounted_for(tmp_path):
    run = read(write(tmp_path / "run"))
    first, second = run.starts
    assert (first.last_step, first.last_time) == (10, 1100.0)
    assert (second.last_step, second.last_time) == (30, 5230.0)
    seconds = history.seconds(run)
    assert seconds.pop("other, such as saves") == pytest.approx(5230 - 900 - sum(seconds.values()))
    assert seconds == {
        "steps": 6 * 45.0,
        "waiting for batches": 6 * 5.0,
        "evaluation": 25.0,
        "compilation": 120.0,
        "interruptions": 5000.0 - 20 - 1100,
    }
    assert history.phases(run) == [("main", 0, 20), ("late", 20, 30)]
    chosen, number = history.events(run.train, "spikes")
    assert chosen.tolist() == [2] and number == 1


def test_a_report_has_curves_levels_phases_spikes_and_starts(tmp_path):
    page = report.page([read(write(tmp_path / "run"))])
    drawn = specs(page)
    headline, loss = drawn[:2]
    assert [point["y"] for point in points(loss) if point["line"] == "train"] == [
        4.5,
        4.0,
        3.5,
        3.0,
        2.5,
        2.0,  # fmt: skip
    ]
    values = [each["data"]["values"] for each in loss["layer"]]
    assert {"text": "late", "x": 20, "x2": 30, "shade": 1} in values[0]
    assert values[-1] == [{"x": 15, "y": 3.5, "kind": "spike"}]
    levels = [each["data"]["values"] for each in headline["layer"]][-1]
    assert levels == [{"y": 3.5, "text": "token frequencies alone"}]
    progress = points(drawn[-1])
    assert {point["part"] for point in progress} == {0, 1}
    assert progress[-1]["x"] == pytest.approx((5200 - 900) / 3600, rel=1e-4)


def test_several_runs_share_charts_and_a_table_of_differences(tmp_path):
    runs = [
        read(write(tmp_path / "a", "optimizer.learning_rate=0.002")),
        read(write(tmp_path / "b", "optimizer.learning_rate=0.004", lines=[*metrics(loss=7.0)])),
    ]
    page = report.page(runs)
    (loss,) = [spec for spec in specs(page) if title(spec) == "loss"]
    assert {(point["line"], point["kind"]) for point in points(loss)} == {
        (str(tmp_path / name), split) for name in "ab" for split in ("train", "heldout")
    }
    table = page[page.index("<h2>Config") :]
    assert "<td>optimizer.learning_rate</td><td>0.002</td><td>0.004</td>" in table
    assert "model.width" not in table


def title(spec: dict) -> str:
    """Returns the title of the vertical axis."""
    encoding = spec.get("encoding") or spec["layer"][-1]["encoding"]
    return encoding["y"].get("title") or ""


def test_texts_of_a_run_are_data_and_nothing_is_requested(tmp_path):
    evil = {"step": 5, "split": EVIL, "time": 1060.0, "seconds": 1.0, EVIL: 2.0, "headline": EVIL}
    directory = write(tmp_path / "<b>run", lines=[*metrics(), evil], devices=[EVIL])
    output = tmp_path / "report.html"
    arguments = ["report", "--workdir", str(directory), "--output", str(output)]
    assert main([*arguments, "--json", str(tmp_path / "report.json")]) == 0
    values = json.loads((tmp_path / "report.json").read_text())[str(directory)]
    assert values["summary"]["loss spikes"] == "1" and values["seconds"]["evaluation"] == 26.0
    parser = Tags()
    parser.feed(output.read_text())
    tags = [tag for tag, _ in parser.tags]
    assert tags.count("script") == 2 and not {"img", "b"} & {*tags}
    assert not any({"src", "href"} & attributes.keys() for _, attributes in parser.tags)
    assert any(EVIL in text for text in parser.texts)
    assert any(title(spec) == EVIL for spec in specs(output.read_text()))


def test_samples_show_what_was_right_and_wrong(tmp_path):
    directory = write(tmp_path / "run")
    guess = {"target": "mat", "guess": EVIL, "probability": 0.5, "target_probability": 0.1}
    lines = [
        {"step": 10, "row": 0, "parts": ["the cat sat on the", guess]},
        {"step": 20, "row": 0, "parts": ["the cat sat on the", guess | {"guess": "mat"}]},
        {"step": 20, "row": 1, "text": EVIL, "target": "x", "prediction": "y", "probability": 0.3},
    ]
    review = {"step": 20, "row": None, "labels": ["x", EVIL], "confusion": [[3, 1], [0, 4]]}
    review["errors"] = [{"text": EVIL, "target": "x", "prediction": "y"}]
    review["bleu_by_length"] = [{"first": 60, "last": None, "number": 7, "bleu": 20.5}]
    text = "".join(json.dumps({"split": "heldout", **line}) + "\n" for line in [*lines, review])
    (directory / "samples.jsonl").write_text(text)
    page = report.page([read(directory)])
    parser = Tags()
    parser.feed(page)
    classes = [each["class"] for tag, each in parser.tags if tag == "span"]
    assert classes == ["wrong", "right", "wrong"] and not any(
        tag == "img" for tag, _ in parser.tags
    )
    assert sum(EVIL in text for text in parser.texts) == 3
    (heat,) = [spec for spec in specs(page) if "data" in spec and title(spec) == "target"]
    assert [value["count"] for value in heat["data"]["values"]] == [3, 1, 0, 4]


def test_a_run_ends_well_without_its_report(tmp_path):
    directory = write(tmp_path / "run")
    lines = []
    with workdir.opened(directory) as run:
        report.write_at_end(run, lines.append)
        assert (directory / report.FILE).is_file()
        (directory / "config.json").write_text("{}")
        report.write_at_end(run, lines.append)
    assert len(lines) == 2


@pytest.mark.parametrize("name", ["run.json", "metrics.jsonl", "status.json", "config.json"])
def test_a_run_without_a_file_is_refused(tmp_path, name):
    directory = write(tmp_path / "run")
    (directory / name).unlink()
    output = tmp_path / "report.html"
    line = refused("report", "--workdir", str(directory), "--output", str(output))
    assert str(directory) in line and not output.exists()


def test_decimation_keeps_the_ends_and_the_extremes():
    draw = np.random.default_rng(0)
    x = np.arange(100_000.0)
    y = draw.normal(size=len(x))
    y[[3, 70_000]] = np.nan
    y[[50_000, 50_001]] = 9.0, -9.0
    chosen = charts.decimate(x, y, intervals=100)
    assert len(chosen) <= 202 and {0, 50_000, 50_001, len(x) - 1} <= {*chosen.tolist()}
    assert np.isfinite(y[chosen]).all() and (np.diff(chosen) > 0).all()
    for first in range(0, len(x), 1000):
        part = y[first : first + 1000]
        drawn = y[chosen[(chosen >= first) & (chosen < first + 1000)]]
        assert (drawn.min(), drawn.max()) == (np.nanmin(part), np.nanmax(part))


def test_columns_are_those_of_the_lines(tmp_path, monkeypatch):
    """Also if the lines of several chunks have other keys."""
    monkeypatch.setattr(metrics_file, "CHUNK", 2)
    directory = write(tmp_path / "run")
    columns = metrics_file.columns(metrics_file.each(directory / "metrics.jsonl"))
    assert columns["train"]["step"].tolist() == [*TIMES]
    more = [{"split": "train", "step": 1}] * 3 + [{"split": "train", "step": 2, "f1": None}]
    more.append({"split": "train", "step": 3, "f1": 0.5, "text": "x"})
    joined = metrics_file.columns(iter(more))["train"]
    assert "text" not in joined
    np.testing.assert_array_equal(joined["f1"], [np.nan] * 4 + [0.5])

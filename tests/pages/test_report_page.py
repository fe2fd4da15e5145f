"""The report of runs: what it says is what their files say, and its charts are valid for Vega-Lite."""

import json
import re

import numpy as np
import pytest
import vl_convert
from kits import browser
from kits.malformed_inputs import refused
from kits.small import VOCABULARY, small_config
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
HEADLINE = "mlm_loss_masked"


def write(directory, *changes, lines=(), **info):
    """Writes the files of a run in two phases, of steps 0 to 20 and 20 to 30, whose last line a kill truncated."""
    directory.mkdir()
    config = small_config("phases.main.steps=20", *changes)
    with config.unlocked():
        config.phases.late = config.phases.main.copy_and_resolve_references()
        config.phases.late.steps = 10
        config.phase_order = ("main", "late")
    configs.save(config, directory / "config.json")
    values = {
        "parameters": 1234,
        "unigram_entropy": 3.5,
        "vocabulary": VOCABULARY._asdict(),
        "starts": STARTS,
        "devices": ["cpu"],
    }
    workdir.write_info(directory, values | info)
    workdir.write_status(directory, "done", step=30, steps=30, progress=workdir.stamp())
    text = "".join(json.dumps(line) + "\n" for line in lines or [*metrics()])
    (directory / "metrics.jsonl").write_text(text + '{"step": 35, "split": "tra')
    return directory


def metrics(loss=5.0):
    for step, time in TIMES.items():
        values = {"loss": loss - step / 10, "skipped": 0.0, "spikes": 0.2 * (step == 15)}
        yield {"step": step, "split": "train", "time": time, **SHARED, **values}
    line = {"split": "heldout", "headline": "text", "loss": 2.5, HEADLINE: 2.0}
    yield line | {"step": 10, "time": 1100.0, "seconds": 0.0}
    yield line | {"step": 30, "time": 5230.0, "seconds": 25.0}


def read(directory):
    with workdir.opened(directory) as run:
        return history.read(run)


def specs(page: str) -> list[dict]:
    """Returns the charts of a page, which Vega-Lite accepts."""
    values = json.loads(re.search(r"const charts = (.*);\n", page)[1]).values()
    for spec in values:
        vl_convert.vegalite_to_vega(spec)
    return [*values]


def title(spec: dict) -> str:
    """Returns the title of the vertical axis."""
    return spec["encoding"]["y"]["title"]


def test_the_time_of_an_interrupted_run_is_accounted_for(tmp_path):
    run = read(write(tmp_path / "run"))
    assert run.headline == HEADLINE
    first, second = run.starts
    assert (first.began, first.last_step, first.ended) == (900.0, 10, 1100.0)
    assert (second.began, second.last_step, second.ended) == (4980.0, 30, 5230.0)
    hours = history.hours(run)
    assert sum(hours.values()) == pytest.approx((5230 - 900) / 3600)
    del hours["other, such as saves"]
    assert {name: round(number * 3600) for name, number in hours.items()} == {
        "steps": 6 * 45,
        "waiting for batches": 6 * 5,
        "evaluation": 25,
        "compilation": 120,
        "interruptions": 4980 - 1100,
    }
    assert history.count(run, "spikes").tolist() == [0, 0, 1, 0, 0, 0]


def test_a_report_has_curves_levels_phases_spikes_and_starts(tmp_path):
    run = read(write(tmp_path / "run"))
    headline, loss, *_, progress, _ = map(lambda spec: spec["datasets"], specs(report.page([run])))
    curve = [(point["x"], point["y"]) for point in loss["lines"] if point["line"] == "train"]
    assert curve == [(step, 5 - step / 10) for step in TIMES]
    (shade,) = [shade for shade in loss["shades"] if shade["opacity"]]
    assert (shade["text"], shade["x"], shade["x2"]) == ("late", 20, 30)
    assert [(mark["x"], mark["y"]) for mark in loss["marks"]] == [(15, 1)]
    assert [level["y"] for level in headline["levels"]] == [3.5]
    assert [point["part"] for point in progress["lines"]] == [0] * 3 + [1] * 5
    assert progress["lines"][-1]["x"] == pytest.approx((5200 - 900) / 3600, rel=1e-4)


def test_several_runs_share_charts_and_a_table_of_differences(tmp_path):
    runs = [
        read(write(tmp_path / "a", "optimizer.learning_rate=0.002")),
        read(write(tmp_path / "b", "optimizer.learning_rate=0.004", lines=[*metrics(loss=7.0)])),
    ]
    page = report.page(runs)
    (loss,) = [spec for spec in specs(page) if title(spec) == "loss"]
    assert {point["line"] for point in loss["datasets"]["lines"]} == {
        f"{name} {split}" for name in "ab" for split in ("train", "heldout")
    }
    table = page[page.index("<h2>Config") :]
    assert "<td>optimizer.learning_rate</td><td>0.002</td><td>0.004</td>" in table
    assert "model.width" not in table


def write_evil(tmp_path):
    """Returns a run whose files have EVIL wherever they may have a text."""
    evil = {"split": EVIL, "time": 1060.0, "seconds": 1.0, EVIL: 2.0}
    lines = [*metrics(), {"step": 5, **evil}, {"step": 10, **evil}]
    directory = write(tmp_path / "<b>run", lines=lines, devices=[EVIL])
    parts = ["the cat", {"guess": EVIL, "target": "mat", "probability": EVIL}]
    lines = [
        {"step": 10, "split": "heldout", "row": 0, "parts": parts},
        {"step": EVIL, "split": "heldout", "row": 0, "parts": [EVIL, parts[1] | {"guess": "mat"}]},
        {"step": EVIL, "split": "heldout", "row": None, "tables": {EVIL: [["a", EVIL], [1, EVIL]]}},
    ]
    samples = "".join(json.dumps(line) + "\n" for line in lines)
    (directory / "samples.jsonl").write_text(samples)
    return directory


def test_texts_of_a_run_are_data(tmp_path):
    directory = write_evil(tmp_path)
    output = tmp_path / "report.html"
    arguments = ["report", "--workdir", str(directory), "--output", str(output)]
    assert main([*arguments, "--json", str(tmp_path / "report.json")]) == 0
    values = json.loads((tmp_path / "report.json").read_text())[str(directory)]
    assert values["spikes, in steps"] == "1"
    parser = Tags()
    parser.feed(output.read_text())
    tags = [tag for tag, _ in parser.tags]
    assert tags.count("script") == 2 and not {"img", "b"} & {*tags}
    assert not any({"src", "href"} & attributes.keys() for _, attributes in parser.tags)
    classes = [each["class"] for tag, each in parser.tags if tag == "span"]
    assert classes == ["wrong", "right"]
    assert sum(EVIL in text for text in parser.texts) >= 9
    assert " ".join(EVIL.splitlines()) in map(title, specs(output.read_text()))


@pytest.mark.parametrize("name", ["run.json", "metrics.jsonl", "status.json", "config.json"])
def test_a_run_without_a_file_is_refused(tmp_path, name):
    directory = write(tmp_path / "run")
    (directory / name).unlink()
    output = tmp_path / "report.html"
    line = refused("report", "--workdir", str(directory), "--output", str(output))
    assert str(directory) in line and not output.exists()


def test_a_run_ends_well_without_its_report(tmp_path):
    directory = write(tmp_path / "run")
    lines = []
    with workdir.opened(directory) as run:
        report.write_at_end(run, lines.append)
        assert (directory / report.FILE).is_file()
        (directory / "config.json").write_text("{}")
        report.write_at_end(run, lines.append)
    assert len(lines) == 2


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


def test_a_metric_of_one_step_has_no_chart_and_equal_levels_are_one(tmp_path):
    once = {"step": 30, "split": "heldout", "time": 5230.0, "seconds": 0.0, "f1": 0.5}
    runs = [read(write(tmp_path / name, lines=[*metrics(), once])) for name in "ab"]
    charts = {title(spec): spec["datasets"] for spec in specs(report.page(runs)) if "layer" in spec}
    assert "f1" not in charts
    assert [level["text"] for level in charts[HEADLINE]["levels"]] == ["token frequencies"]
    assert {point["line"] for point in charts[HEADLINE]["lines"]} == {"a heldout", "b heldout"}


def test_columns_are_those_of_the_lines(tmp_path):
    path = tmp_path / "metrics.jsonl"
    assert metrics_file.columns(path) == {}
    lines = [{"split": "train", "step": 1, "f1": None, "text": "x"}] * 3000
    lines.append({"split": "train", "step": 2, "f1": 0.5, "text": "y"})
    lines.append({"split": "dev", "step": 2})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"split": "tr')
    columns = metrics_file.columns(path)
    assert columns["train"].keys() == {"step", "f1"} and columns["dev"]["step"].tolist() == [2]
    np.testing.assert_array_equal(columns["train"]["f1"], [np.nan] * 3000 + [0.5])
    # An invalid line is left out, and a key that is once a number and once a text is a number.
    lines = [{"split": "dev", "step": 1, "seconds": 1.0, "f1": f1} for f1 in (0.5, "none")]
    path.write_text("x\n" + "".join(json.dumps(line) + "\n" for line in lines))
    np.testing.assert_array_equal(metrics_file.columns(path)["dev"]["f1"], [0.5, np.nan])


@pytest.mark.full
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_charts_of_a_report_are_drawn_in_a_browser(tmp_path, scheme):
    runs = [read(write(tmp_path / f"a_run_with_a_long_name_and_seed_{seed}")) for seed in "12"]
    path = tmp_path / "report.html"
    for shown in (runs[:1], runs):
        path.write_text(report.page(shown))
        with browser.opened(path, scheme) as page:
            charts = page.locator("figure")
            charts.last.locator("svg").wait_for()
            for number in range(charts.count()):
                box = charts.nth(number).locator(".mark-group.root").bounding_box()
                assert box["width"] > 300 and box["height"] > 20
                edge = charts.nth(number).bounding_box()
                for label in charts.nth(number).locator(".role-legend-label text").all():
                    box = label.bounding_box()
                    assert box["x"] + box["width"] <= edge["x"] + edge["width"]
            point = page.locator("figure .mark-symbol path").first
            point.hover(force=True)  # of two runs, one covers the other
            tooltip = page.locator("#vg-tooltip-element")
            tooltip.wait_for(state="visible")
            assert re.search(r"heldout\s+x\s+10\s+y\s+2$", tooltip.inner_text())


@pytest.mark.full
def test_a_browser_runs_no_text_of_a_run(tmp_path):
    path = tmp_path / "report.html"
    path.write_text(report.page([read(write_evil(tmp_path))]))
    with browser.opened(path) as page:
        page.locator("figure svg").last.wait_for()
        assert page.locator("script").count() == 2 and page.locator("img").count() == 0


@pytest.mark.full
def test_a_million_lines_are_a_small_page(tmp_path):
    (line, *_) = metrics()
    lines = ({**line, "step": step, "loss": step % 97 / 7} for step in range(1_000_000))
    page = report.page([read(write(tmp_path / "run", lines=lines))])
    assert len(page) < 3_000_000

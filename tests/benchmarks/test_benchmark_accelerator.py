"""benchmarks/accelerator.py: the page with stand-ins for the programs, and with --full all of it on the CPU."""

import json
import time

import jax.profiler
import pytest

from benchmarks import accelerator
from bert_jax import cli, config
from bert_jax.errors import BadInput

SHAPES = ["--shapes", "bert_tiny:short", "modern_base:long"]
MEASURED = {
    "compile_seconds": 30.0,
    "attention": "xla",
    "step_seconds": 0.5,
    "slowest_seconds": 0.75,
    "tokens_per_second": 65536.0,
    "utilization": None,
    "peak_bytes": None,
    "planned_bytes": 3 << 30,
}
PLANNED = {
    "seconds_per_step": 0.4,
    "seconds_per_step_all_hidden": 0.25,
    "seconds_per_step_none_hidden": 0.5,
    "utilization": 0.5,
    "bytes_per_chip": 2 << 30,
}
TRACE = """
planes { name: "/device:GPU:0"
  lines { name: "Stream #7(Compute)"
    events { metadata_id: 1 duration_ps: 3000000000 } events { metadata_id: 2 duration_ps: 1000000000 }
    events { metadata_id: 3 duration_ps: 6000000000 } }
  lines { name: "XLA Ops" events { metadata_id: 1 duration_ps: 9000000000 } }
  event_metadata { key: 1 value { id: 1 name: "loop_add_fusion_12" } }
  event_metadata { key: 2 value { id: 2 name: "loop_add_fusion_3_1" } }
  event_metadata { key: 3 value { id: 3 name: "nvjet_tst_128x256" } } }
planes { name: "/host:CPU" lines { name: "tf_XLAEigen/1"
    events { metadata_id: 1 duration_ps: 9000000000 stats { metadata_id: 1 str_value: "add.1" } } }
  event_metadata { key: 1 value { id: 1 name: "add.1" } } stat_metadata { key: 1 value { id: 1 name: "hlo_op" } } }
"""


@pytest.fixture
def programs(monkeypatch) -> list[list[str]]:
    """Returns a list that records the programs, which print what the real ones would; steps of ModernBERT fail."""
    recorded = []

    def run(*command, deadline, **others):
        words = list(map(str, command))
        recorded.append(words)
        if time.monotonic() > deadline:
            raise BadInput("left out")
        if words[0] == "-c":
            return json.dumps(["gpu", "cuda 12", 2 * ["NVIDIA H100 80GB HBM3"]])
        if words[:2] != ["-m", "bert_jax"]:
            raise BadInput("exit code 2: not installed")
        words, overrides = cli.split_overrides(words[2:])
        options = cli.parser(words[:1]).parse_args(words)
        settings = config.load(options.config, overrides)
        if settings.model.name == "modernbert":
            raise BadInput("exit code 1: out of | memory")
        assert words[0] != "plan" or options.topology == "h100:2"
        values = {"benchmark": MEASURED, "plan": PLANNED}[words[0]]
        assert settings.phases[options.phase].batch == 2 * 256
        return json.dumps({"phases": {options.phase: values}})

    monkeypatch.setattr(accelerator, "run", run)
    return recorded


def cells(page: str, title: str) -> list[list[str]]:
    """Returns the cells of the rows of a part, without those of its header."""
    _, part = page.split(f"\n## {title}\n")
    rows = [line for line in part.split("\n## ")[0].splitlines() if line.startswith("| ")]
    return [row.strip("| ").split(" | ") for row in rows[2:]]


def test_a_failure_is_a_row_and_the_others_follow(programs, tmp_path):
    page = tmp_path / "page.md"
    parts = ["--only", "speed", "pytorch", "plan"]
    assert accelerator.main(["--output", str(page), *SHAPES, *parts]) == 0
    text = page.read_text()
    assert "2 x NVIDIA H100 80GB HBM3" in text
    tiny, again, modern, _ = cells(text, "speed")
    assert tiny[:2] == ["bert_tiny:short, 256 x 128", "empty"] and again[1] == "filled"
    assert tiny[3:] == ["30.0", "0.5", "0.75", "65,536", "unknown", "3", "xla"]
    assert modern == ["modern_base:long, 2 x 8192", "empty", "exit code 1: out of / memory"]
    assert [row[1:] for row in cells(text, "pytorch")] == 2 * [["exit code 2: not installed"]]
    tiny, modern = cells(text, "plan")
    assert tiny[1:] == ["0.5", "unknown", "3", "0.4 (0.25 to 0.5)", "0.500", "2", "1.25"]
    assert modern[1:] == ["-", "-", "-", "exit code 1: out of / memory"]
    accelerator.main(["--output", str(page), *SHAPES, "--only", "plan"])
    assert page.read_text().startswith(text)


def test_what_the_minutes_leave_no_time_for_is_named(programs, tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    clock = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: clock() + 60 * len(programs))
    assert accelerator.main(["--output", str(page), "--minutes", "3", *SHAPES]) == 0
    text = page.read_text()
    assert all(f"\n## {part}\n" in text for part in accelerator.PARTS)
    assert text.count("left out") >= len(accelerator.PARTS)


def test_a_program_ends_in_time_and_its_failure_has_a_reason(tmp_path):
    log = tmp_path / "log"
    late = dict(deadline=time.monotonic() + 0.2, log=log)
    with pytest.raises(BadInput, match="not finished"):
        accelerator.run("-c", "import time; time.sleep(600)", **late)
    with pytest.raises(BadInput, match="left out"):
        accelerator.run("-c", "", deadline=0, log=log)
    text = "why {A}\n*** Check failure stack trace: ***\n    @     0x7f  (unknown)\n\n"
    failing = f"import os, sys; sys.stderr.write({text!r}.format(**os.environ)); sys.exit(3)"
    with pytest.raises(BadInput, match="exit code 3: why not$"):
        accelerator.run("-c", failing, deadline=time.monotonic() + 600, log=log, A="not")
    assert "why not" in log.read_text()


def test_the_largest_costs_are_those_of_the_streams_of_a_gpu(tmp_path):
    trace = jax.profiler.ProfileData.text_proto_to_serialized_xspace(TRACE)
    (tmp_path / "a").mkdir()
    (tmp_path / "a/host.xplane.pb").write_bytes(trace)
    assert accelerator.costs(tmp_path) == [
        ("nvjet_tst_128x256", "0.2", "1.200", "60.0%", "nvjet_tst_128x256: 1.200 ms"),
        ("loop_add_fusion", "0.4", "0.800", "40.0%", "loop_add_fusion_12: 0.600 ms"),
    ]
    (tmp_path / "a/host.xplane.pb").unlink()
    with pytest.raises(BadInput, match="no trace"):
        accelerator.costs(tmp_path)


@pytest.mark.full
def test_all_parts_run_on_the_cpu(tmp_path):
    page = tmp_path / "page.md"
    keys = "model.width=32 model.heads=4 model.layers=2 tokenizer.size=500".split()
    arguments = ["--output", str(page), "--minutes", "30", "--tokens", "256", "--steps", "100"]
    arguments += ["--shapes", "bert_tiny:short", "modern_base:short"]
    assert accelerator.main([*arguments, *(f"--config.{key}" for key in keys)]) == 0
    text = page.read_text()
    assert len([row for row in cells(text, "speed") if len(row) == 10]) == 4
    assert ": 0 of " in text and "losses of the log equal" in text
    assert len(cells(text, "profile")) == 2 * accelerator.COSTS
    assert all("--topology" in row[-1] for row in cells(text, "plan"))

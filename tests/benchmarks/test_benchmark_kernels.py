"""benchmarks/kernels.py: counts read from schedules as libtpu writes them, beside those that plan has."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from kits.places import ROOT
from kits.slices import needs_libtpu

from benchmarks import kernels as script
from bert_jax.planning import describe, kernels
from bert_jax.runs import libtpu

SCHEDULE = """Schedule analysis:
	total scheduled bundles:    {}
	empty scheduled bundles:    0
	{}.00 scheduled bundles (100.00%): %some = bf16[1,512,128] custom-call(%a)
"""


def write(directory: Path, counts: dict[str, int]) -> None:
    for number, (name, count) in enumerate(counts.items()):
        path = directory / f"17953687{number}-{name}.1-71-schedule-analysis_final_bundles.txt"
        path.write_text(SCHEDULE.format(count, count))
        (directory / f"17953687{number}-{name}.1-72-final_bundles.txt").write_text("0 : { }")


@pytest.mark.parametrize(
    "names, expected",
    [
        (
            ["jvp_rows_forward_kernel_64_", "transpose_jvp_rows_backward_kernel_64__", "copy.3"],
            {"forward": 0, "backward": 1},
        ),
        (["rows_forward_kernel_64_dropout_", "copy.3"], {"forward_dropout": 0}),
        (
            ["splash_mha_fwd_segmented_residuals", "splash_mha_dkv_segmented_no_residuals"],
            {"fwd": 0, "dkv": 1},
        ),
    ],
)
def test_schedules_are_read_by_the_names_of_their_kernels(tmp_path, names, expected):
    write(tmp_path, {name: number for number, name in enumerate(names)})
    assert script.read(tmp_path) == expected


def test_every_kept_number_is_counted():
    """Each step of v5e by its length, each other chip, and float32."""
    lengths = {
        (case.kind, case.length, name) for case in script.CASES.values() for name in case.kept
    }
    steps = {"splash": kernels.SPLASH_STEPS, "fused": kernels.FUSED_STEPS}
    for kind, kept in steps.items():
        assert {(kind, n, name) for name in kept for n in kept[name]} <= lengths
    others = {(case.kind, case.device) for case in script.CASES.values()}
    assert {(kind, name) for kind, chips in kernels.RELATIVE.items() for name in chips} < others
    case = script.Case("splash", device="TPU v4")
    assert case.kept == {"fwd": 2111 * 1.39, "dkv": 2857 * 1.39}


def test_counts_that_are_off(tmp_path, monkeypatch, capsys):
    """By 3 % of one of them: its row says by how much."""
    case = script.CASES["splash-512"]
    for more, code in ((1.0, 0), (1.04, 1)):
        monkeypatch.setattr(
            script, "count", lambda *_, n=more: {"fwd": 2111, "dkv": round(2857 * n)}
        )
        assert script.main(["--only", "splash-512"]) == code
        out = capsys.readouterr().out
        assert "| splash-512, fwd, 512 | 2,111 | 2,111 | +0.0 % |" in out
        assert f"| {100 * (more - 1):+.1f} % |" in out
    assert case.kept == {"fwd": 2111, "dkv": 2857}


@pytest.mark.parametrize("before", ["", "--xla_some_flag=1"])
def test_nothing_is_written_afterwards(monkeypatch, before):
    """By processes that are started later, or a libtpu that is loaded later."""
    if before:
        monkeypatch.setenv(libtpu.FLAGS, before)
    with script.dumped() as dump:
        assert str(dump) in os.environ[libtpu.FLAGS]
    assert os.environ.get(libtpu.FLAGS, "") == before and not dump.exists()


@pytest.mark.parametrize("arguments, words", [(["--only", "splash"], "splash"), (["x"], "x")])
def test_bad_input(arguments, words, capsys):
    assert script.main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("kernels.py: ") and words in error and error.count("\n") == 1


@needs_libtpu
@pytest.mark.slow
def test_the_compiler_makes_what_is_kept():
    """In a process of its own: libtpu is told to write its schedules before it is loaded."""
    command = [sys.executable, "benchmarks/kernels.py", "--only", "splash-128"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| splash-128, fwd, 128 | 548 |" in done.stdout


@pytest.mark.parametrize(
    "version, told", [("0.0.42.1", False), ("0.0.42", False), ("0.0.43", True)]
)
def test_another_compiler_is_told_where_kernels_are_counted(version, told):
    for seconds in (0.0, 0.1):
        phases = {"main": [{"seconds_of_kernels": seconds, "settings": {}, "reason": "none"}]}
        values = {"topology": "v5e:2x2", "is_whole": True, "phases": phases}
        text = describe.describe_search(values | {"versions": {"libtpu": version}})
        lines = [line for line in text.splitlines() if line.endswith("counts them")]
        assert len(lines) == (told and seconds > 0)
        assert all(f"libtpu {kernels.LIBTPU}, {version} is installed" in line for line in lines)

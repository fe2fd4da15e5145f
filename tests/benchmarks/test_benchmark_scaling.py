"""benchmarks/scaling.py: a row of its table, and what ends in a line."""

import pytest
from kits.slices import needs_libtpu

from benchmarks import scaling

SMALL = [f"--config.model.{key}" for key in ("layers=1", "width=32", "heads=2")]


@needs_libtpu
def test_a_row(capsys):
    """What is sent is, but for the numbers of the log, what arithmetic says of the gradients."""
    case = ["--slices", "v5e:2x2", "--meshes", "1,1", "--rows", "2"]
    assert scaling.main([*case, *SMALL]) == 0
    head, line, row = capsys.readouterr().out.splitlines()
    assert head.count("|") == line.count("|") == row.count("|")
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[:3] == ["v5e:2x2", "4, 1", "4 x 1 x 1"]
    assert cells[7].startswith("8, ") and int(cells[6].replace(",", "")) > 0
    sent, what = cells[8].split(" MB ")
    assert what == "all-reduce f32 over data"
    assert float(sent) == pytest.approx(float(cells[9].removesuffix(" MB")), abs=0.02)


@needs_libtpu
@pytest.mark.parametrize(
    "options, words",
    [
        (["--config.model.depth=3"], "--config.model.depth: no such key"),
        (["--config.model.heads=3", "--meshes", "1,2"], "model.width"),
        (["--meshes", "8,1"], "config.mesh: data=-1 fsdp=8 tensor=1 does not fit 4 devices"),
        (["--meshes", "2"], "--meshes 2: expected FSDP,TENSOR"),
        (["--meshes", "2,b"], "config.mesh.tensor=b: "),
        (["--rows", "0"], "--rows: 0: expected a whole number from 1"),
        (["--slices", "v5e:3x3"], "--topology v5e:3x3: v5e comes as 1x1 "),
        (["--phase", "main"], "--phase main: the config has short, long"),
        (["--columns", "3"], "--columns: unknown"),
        (["--config", "none"], "--config none: no such config"),
    ],
)
def test_what_cannot_be_compiled(options, words, capsys):
    assert scaling.main(["--slices", "v5e:2x2", *options]) == 2
    out, err = capsys.readouterr()
    assert err.startswith("scaling.py: ") and words in err and err.count("\n") == 1 and not out

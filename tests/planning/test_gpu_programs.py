"""Training steps of the shipped configs, compiled for an H100: memory, bytes, kernels do not change unnoticed."""

import json
import os
import subprocess
import sys

import pytest
from kits.gpus import needs_compiler
from kits.paths import ROOT

# Written by `python benchmarks/gpu.py --only ... --json tests/golden/gpu_programs.json` with these names.
SAVED = json.loads((ROOT / "tests/golden/gpu_programs.json").read_text())
NAMES = "bert_base-128", "modern_base-1024", "transformer_base-256"


@needs_compiler
@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
def test_memory_bytes_and_kernels_are_those_that_were_written_down(name, tmp_path):
    """In a process of its own: XLA reads its flags once."""
    output = tmp_path / "numbers.json"
    command = [sys.executable, "benchmarks/gpu.py", "--only", name, "--json", output]
    flags = {"XLA_FLAGS": ""}
    subprocess.run(command, cwd=ROOT, env=os.environ | flags, check=True, capture_output=True)
    numbers = json.loads(output.read_text())[name]
    for key in ("memory", "moved", "roofline"):
        assert numbers[key] == pytest.approx(SAVED[name][key], rel=0.05), key
    assert numbers["kernels"].keys() == SAVED[name]["kernels"].keys()
    for kind, (_, distinct) in numbers["kernels"].items():
        assert distinct <= 1.05 * SAVED[name]["kernels"][kind][1] + 1, kind

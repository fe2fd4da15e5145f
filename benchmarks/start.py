"""The time that a run of one or several processes takes to its first step, with compiled programs cached.

python benchmarks/start.py [--processes 2] [--config demo] [--turns 3] [--cache DIR] [--config.KEY=VALUE ...]

Starts the processes on this machine, one device each, and ends them after the first line of metrics.jsonl. The first
turn compiles and is not counted, unless --cache is given. The store must exist. Prints a Markdown row with, for every
turn, wall-clock seconds, CPU seconds of all processes, and seconds until process 0 has loaded its programs. On a shared
machine only CPU times are comparable.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bert_jax.cli import Parser, positive
from bert_jax.errors import BadInput

TARGETS = {1: "20 s", 2: "30 s"}  # by number of processes


def main(arguments: list[str] | None = None) -> int:
    options = Parser(description=__doc__.splitlines()[0])
    options.add_argument("--processes", type=positive, default=2)
    options.add_argument("--config", default="demo")
    options.add_argument("--turns", type=positive, default=3)
    options.add_argument("--cache", type=Path, help="an existing cache of compiled programs")
    try:
        options, more = options.parse_known_args(arguments)
    except BadInput as error:
        print(f"start.py: {error}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as directory:
        cache = options.cache.absolute() if options.cache else f"{directory}/cache"
        more += ["--config.log.every=1", f"--config.compilation_cache={cache}"]
        command = [sys.executable, "-m", "bert_jax", "pretrain", "--config", options.config, *more]
        turns = [
            first_step([*command, "--workdir", f"{directory}/run{turn}"], options.processes)
            for turn in range(options.turns + (not options.cache))
        ]
    print(row(options.config, options.processes, turns[-options.turns :]))
    return 0


def row(config: str, processes: int, turns: list[tuple[float, float, float]]) -> str:
    clock, cpu, programs = zip(*turns, strict=True)
    number = "1 process" if processes == 1 else f"{processes} processes"
    return (
        f"| start of {config} in {number} to its first reported step, warm cache, existing store"
        f" | {TARGETS.get(processes, '-')} | {join(clock)} s; CPU time {join(cpu)} s; compiling or loading programs"
        f" {join(programs)} s | |"
    )


def join(seconds) -> str:
    return ", ".join(f"{turn:.1f}" for turn in seconds)


def first_step(command: list[str], processes: int) -> tuple[float, float, float]:
    """Returns, from the start of all processes until the first reported step, the wall-clock and the CPU seconds; and
    the seconds that process 0 took to compile or load its programs."""
    metrics = Path(command[-1]) / "metrics.jsonl"
    with socket.create_server(("localhost", 0)) as server:
        address = f"localhost:{server.getsockname()[1]}"
    started, running = time.monotonic(), []
    try:
        for number in range(processes):
            variables = {"JAX_COORDINATOR_ADDRESS": address, "JAX_PROCESS_ID": str(number)}
            variables |= {"JAX_NUM_PROCESSES": str(processes)}
            running.append(
                subprocess.Popen(command, env=os.environ | variables, stdout=subprocess.DEVNULL)
            )
        while not (metrics.is_file() and metrics.read_text().count("\n")):
            if any(process.poll() is not None for process in running):
                raise SystemExit("start.py: a process ended before its first step")
            time.sleep(0.05)
        seconds = time.monotonic() - started
        run_info = json.loads((metrics.parent / "run.json").read_text())
        return seconds, sum(map(cpu_seconds, running)), run_info["starts"][0]["compile_seconds"]
    finally:
        for process in running:
            process.kill()
            process.wait()


def cpu_seconds(process: subprocess.Popen) -> float:
    """Returns the CPU seconds that a process has used so far (Linux)."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(main())

"""How long a run of one or several processes takes to its first step, with what the compiler made kept from before.

python benchmarks/start.py [--processes 2] [--config demo] [--turns 3] [--cache DIR] [--config.KEY=VALUE ...]

Starts the processes on this machine, one device each, and ends them after the first line of metrics.jsonl. The first
turn, which compiles, is not counted, unless a cache is given. The store is prepared before. Prints a Markdown row, of
every turn: seconds by the clock; seconds of processors, all processes together; those until process 0 had its programs.
On a machine that others use, only the seconds of processors can be compared.
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

TARGETS = {1: "20 s", 2: "30 s"}  # by processes


def main(arguments: list[str] | None = None) -> int:
    options = Parser(description=__doc__.splitlines()[0])
    options.add_argument("--processes", type=positive, default=2)
    options.add_argument("--config", default="demo")
    options.add_argument("--turns", type=positive, default=3)
    options.add_argument("--cache", type=Path, help="of compiled programs, from before")
    try:
        options, more = options.parse_known_args(arguments)
    except BadInput as error:
        print(f"start.py: {error}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as place:
        cache = options.cache.absolute() if options.cache else f"{place}/cache"
        more += ["--config.log.every=1", f"--config.compilation_cache={cache}"]
        command = [sys.executable, "-m", "bert_jax", "pretrain", "--config", options.config, *more]
        turns = [
            first_step([*command, "--workdir", f"{place}/run{turn}"], options.processes)
            for turn in range(options.turns + (not options.cache))
        ]
    print(row(options.config, options.processes, turns[-options.turns :]))
    return 0


def row(config: str, processes: int, turns: list[tuple[float, float, float]]) -> str:
    clock, processors, programs = zip(*turns, strict=True)
    many = "1 process" if processes == 1 else f"{processes} processes"
    return (
        f"| start of {config} in {many} to its first reported step, warm cache, its store prepared"
        f" | {TARGETS.get(processes, '-')} | {listed(clock)} s; of processors {listed(processors)} s; programs ready"
        f" {listed(programs)} s after they were begun | |"
    )


def listed(seconds) -> str:
    return ", ".join(f"{turn:.1f}" for turn in seconds)


def first_step(command: list[str], processes: int) -> tuple[float, float, float]:
    """Seconds from the start of all processes until the first step is reported: by the clock, of processors; and
    those for programs."""
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
                raise SystemExit("a process has ended")
            time.sleep(0.05)
        seconds = time.monotonic() - started
        known = json.loads((metrics.parent / "run.json").read_text())
        return seconds, sum(map(used, running)), known["starts"][0]["compile_seconds"]
    finally:
        for process in running:
            process.kill()
            process.wait()


def used(process: subprocess.Popen) -> float:
    """Seconds of processors that it has used so far (Linux)."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(main())

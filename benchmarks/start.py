"""How long a run of several processes takes to its first step, with what the compiler made kept from the run before.

python benchmarks/start.py [--processes 2] [--config demo] [--turns 3] [--config.KEY=VALUE ...]

Starts the processes on this machine, one device each, and ends them after the first line of metrics.jsonl. The first
turn, which compiles, is not counted. The store is prepared before. Prints a Markdown row: seconds of every turn.
"""

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--processes", type=int, default=2)
    options.add_argument("--config", default="demo")
    options.add_argument("--turns", type=int, default=3)
    options, more = options.parse_known_args()
    with tempfile.TemporaryDirectory() as place:
        more += ["--config.log.every=1", f"--config.compilation_cache={place}/cache"]
        command = [sys.executable, "-m", "bert_jax", "pretrain", "--config", options.config, *more]
        seconds = [
            first_step([*command, "--workdir", f"{place}/run{turn}"], options.processes)
            for turn in range(options.turns + 1)
        ]
    print(
        f"| start of {options.config} in {options.processes} processes to its first reported step, warm cache, its"
        f" store prepared | 30 s | {', '.join(f'{turn:.1f}' for turn in seconds[1:])} s | |"
    )


def first_step(command: list[str], processes: int) -> float:
    """Seconds from the start of all processes until the first step is reported."""
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
        return round(time.monotonic() - started, 1)
    finally:
        for process in running:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()

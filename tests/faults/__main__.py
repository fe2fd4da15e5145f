"""The command line of the faults: which to try, how often, from which seed."""

import argparse
import logging
import os
import secrets
import shutil
import sys
import tempfile
import time
import traceback
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

# Before jax and TensorFlow are imported, as in tests/conftest.py.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import jax  # noqa: E402
import numpy as np  # noqa: E402
import processes  # noqa: E402

from faults import kills, signals, stores, table  # noqa: E402
from faults.world import ALONE, DEVICES, Outcome, World  # noqa: E402


class Row(NamedTuple):
    """A fault. attempt: (world, directory, generator, number of the try) -> Outcome."""

    fault: str
    must: str
    attempt: Callable
    tries: int
    short: int


ROWS = {
    "kills": Row(
        "SIGKILL at random times, saves included, up to three in a run",
        "ends bitwise equal",
        kills.kill,
        50,
        3,
    ),
    "sigterm": Row(
        "SIGTERM, one and two processes",
        "saved, code 75, bitwise resume",
        signals.terminate,
        10,
        2,
    ),
    "stores": Row(
        "store: bit flips, truncations at any place, missing and swapped shards",
        "named",
        stores.damage,
        50,
        3,
    ),
}


def parse(arguments) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="faults", description=__doc__)
    parser.add_argument("--short", action="store_true", help="one to three tries of each fault")
    parser.add_argument("--seed", type=int, help="of all that is drawn; default: a fresh one")
    parser.add_argument("--only", nargs="+", choices=ROWS, default=list(ROWS), metavar="NAME")
    parser.add_argument("--try", type=int, dest="number", help="this try alone of one fault")
    parser.add_argument("--output", type=Path, help="the table; default: docs/faults.md")
    parser.add_argument("--world", type=Path, help="where the undisturbed runs are kept")
    options = parser.parse_args(arguments)
    if options.number is not None and len(options.only) != 1:
        parser.error("--try is of one fault: --only NAME")
    if options.output is None and not options.short and options.number is None:
        options.output = Path(__file__).parents[2] / "docs/faults.md"
    if options.seed is None:
        options.seed = secrets.randbelow(1 << 31)
    return options


def main(arguments=None) -> int:
    options = parse(arguments)
    logging.getLogger("absl").setLevel(logging.ERROR)  # of Orbax, which warns of what is meant here
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="faults-") as scratch:
        world = make_world(options.world or Path(scratch) / "world")
        scratch, failed = Path(scratch), 0
        for name in options.only:
            started = time.monotonic()
            outcomes = attempts(world, scratch, name, options)
            failed += sum(not outcome.ok for outcome in outcomes)
            row, seconds = ROWS[name], time.monotonic() - started
            text = table.row(name, row.fault, row.must, outcomes, seconds, options.seed)
            print(text, flush=True)
            if options.output:
                table.write(options.output, list(ROWS), {name: text})
    return 1 if failed else 0


def make_world(directory: Path) -> World:
    """Compiled programs have a place of their own: what the faults leave there is read by no other test."""
    jax.config.update("jax_num_cpu_devices", sum(DEVICES[ALONE]))
    jax.config.update("jax_compilation_cache_dir", str(directory.absolute() / "cache"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    processes.share_compiled_programs()
    started = time.monotonic()
    world = World(directory)
    world.prepare()
    print(f"undisturbed runs: {time.monotonic() - started:.0f} s", flush=True)
    return world


def attempts(world: World, scratch: Path, name: str, options) -> list[Outcome]:
    """The tries of a row, each told as it ends; a failed one is told in full."""
    row, outcomes = ROWS[name], []
    tries = range(row.short if options.short else row.tries)
    for number in tries if options.number is None else [options.number]:
        directory = scratch / f"{name}-{number}"
        directory.mkdir()
        draw = np.random.default_rng([options.seed, zlib.crc32(name.encode()), number])
        started = time.monotonic()
        try:
            outcome = row.attempt(world, directory, draw, number)
        except Exception:
            outcome = Outcome(False, "no answer", traceback.format_exc())
        shutil.rmtree(directory)
        outcomes.append(outcome)
        seconds, said = time.monotonic() - started, " ".join(outcome.story.split())
        print(f"{name} {number}, {seconds:.1f} s: {said[:300]}", flush=True)
        if not outcome.ok:
            print(f"FAILED, again by --only {name} --seed {options.seed} --try {number}")
            print(outcome.story, flush=True)
    return outcomes


if __name__ == "__main__":
    sys.exit(main())

"""The command line of the faults: which to try, how often, from which seed."""

import argparse
import logging
import os
import secrets
import sys
import tempfile
import time
from pathlib import Path

# Before jax and TensorFlow are imported, as in tests/conftest.py.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import jax

from faults import table
from faults.rows import ROWS
from faults.world import ALONE, DEVICES, World


def parse(arguments) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="faults", description=__doc__)
    parser.add_argument("--short", action="store_true", help="one to three tries of each fault")
    parser.add_argument("--seed", type=int, help="of all that is drawn; default: a fresh one")
    parser.add_argument("--only", nargs="+", choices=ROWS, default=list(ROWS), metavar="NAME")
    parser.add_argument("--try", type=int, dest="number", help="this try alone of one fault")
    parser.add_argument("--output", type=Path, help="the table; default: docs/faults.md")
    parser.add_argument("--world", type=Path, help="where the undisturbed runs are kept")
    options = parser.parse_args(arguments)
    if options.number is not None and (len(options.only) != 1 or options.only == ["doors"]):
        parser.error("--try is of one fault: --only NAME; the doors are tried together, by --seed")
    if options.output is None and not options.short and options.number is None:
        options.output = Path(__file__).parents[2] / "docs/faults.md"
    if options.seed is None:
        options.seed = secrets.randbelow(1 << 31)
    return options


def main(arguments=None) -> int:
    options = parse(arguments)
    logging.getLogger("absl").setLevel(logging.ERROR)  # of Orbax, which warns of what is meant here
    print(f"seed {options.seed}", flush=True)
    commit = table.commit(options.output)
    with tempfile.TemporaryDirectory(prefix="faults-") as scratch:
        world = make_world(options.world or Path(scratch) / "world")
        scratch, failed = Path(scratch), 0
        for name in options.only:
            row, started = ROWS[name], time.monotonic()
            tries = range(row.short if options.short else row.tries)
            tries = tries if options.number is None else [options.number]
            outcomes = row.attempts(world, scratch, name, tries, options.seed)
            failed += sum(table.is_failure(outcome, options.short) for outcome in outcomes)
            seconds = time.monotonic() - started
            text = table.row(name, row.fault, row.must, outcomes, seconds, options.seed, commit)
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
    started = time.monotonic()
    world = World(directory)
    world.prepare()
    print(f"undisturbed runs: {time.monotonic() - started:.0f} s", flush=True)
    return world


if __name__ == "__main__":
    sys.exit(main())

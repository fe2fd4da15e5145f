"""The entry point of `bert-jax` and `python -m bert_jax`."""

import os
import sys
import traceback

from bert_jax.cli import main
from bert_jax.errors import LOST
from bert_jax.runs import libtpu


def run() -> None:
    """Runs the command line and ends the process with its exit code."""
    libtpu.configure()
    try:
        code = main()
    except SystemExit as error:  # raised by argparse
        code = error.code
    except BaseException:
        traceback.print_exc()
        code = 1
    drop_unwritten()
    if code in (1, 2, LOST):
        # After a failure, threads of a library may run forever and keep the process alive.
        os._exit(code)
    sys.exit(code)


def drop_unwritten() -> None:
    """Flushes standard output and error. Discards output that cannot be written: Python would try again at exit, and
    change the exit code."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


if __name__ == "__main__":
    run()

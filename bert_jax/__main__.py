"""How the process starts: `bert-jax`, or `python -m bert_jax`."""

import os
import sys
import traceback

from bert_jax.cli import main
from bert_jax.runs import libtpu


def run() -> None:
    libtpu.configure()
    try:
        code = main()
    except SystemExit as left:  # of argparse
        code = left.code
    except BaseException:
        traceback.print_exc()
        code = 1
    drop_unwritten()
    if code == 1:
        # Threads of a library that has failed may never end, and would keep the process from ending.
        os._exit(code)
    sys.exit(code)


def drop_unwritten() -> None:
    """Flushes both streams. Drops what cannot be written, or the process would end with another exit code."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


if __name__ == "__main__":
    run()

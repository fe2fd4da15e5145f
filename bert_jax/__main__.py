"""How the process starts: `bert-jax`, or `python -m bert_jax`."""

import os
import sys
import traceback

from bert_jax.cli import main
from bert_jax.runs import libtpu, standard_streams


def run() -> None:
    standard_streams.open_closed()
    libtpu.settle()
    try:
        code = main()
    except SystemExit as left:  # of argparse
        code = left.code
    except BaseException:
        with standard_streams.lasting():
            traceback.print_exc()
        code = 1
    standard_streams.drop_unwritten()
    if code == 1:
        # Threads of a library that has failed may never end, and would keep the process from ending.
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    run()

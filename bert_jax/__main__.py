"""The entry point of `bert-jax` and `python -m bert_jax`."""

import os
import signal
import sys
import threading
import traceback

from bert_jax.cli import main
from bert_jax.errors import LOST
from bert_jax.runs import environment

# Commands whose time is that of training steps, or of programs like them.
COMPUTING = set("prepare pretrain finetune evaluate predict score features benchmark".split())


def run() -> None:
    """Runs the command line and ends the process with its exit code."""
    if sys.stderr is None:  # it is closed, and a file that is opened would get its number
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 2)
        sys.stderr = open(2, "w")
    if not COMPUTING.isdisjoint(sys.argv[1:]):
        environment.restart_process()
    environment.configure()
    # TensorFlow imports Keras at its own import, for seconds, unless told to use the older one, which is not installed.
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    # In the background of a script the signal is ignored.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)
    try:
        code = main()
    except SystemExit as error:  # raised by argparse
        code = error.code
    except BaseException:
        traceback.print_exc()
        code = 1
    drop_unwritten()
    if code in (1, 2, LOST, 130):
        # After a failure or an interrupt, threads of a library may run forever and keep the process alive.
        os._exit(code)
    sys.exit(code)


def interrupt(number: int, frame) -> None:
    """Handles Ctrl-C: raises KeyboardInterrupt, but not where it would be lost or would break a library.

    Python ignores an exception within a callback of the garbage collector, such as JAX's, and an interrupted import may
    leave a library half initialized. There, the signal is sent again a little later.
    """
    while frame:
        code = frame.f_code
        if code.co_name == "_xla_gc_callback" or "importlib" in code.co_filename:
            threading.Timer(0.05, os.kill, (os.getpid(), number)).start()
            return
        frame = frame.f_back
    raise KeyboardInterrupt


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

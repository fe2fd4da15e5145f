"""A call in a process of its own: of a compiler that may crash, and that Ctrl-C would have to wait for.

This file is also the program of that process, which ends with the one that started it.
"""

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from typing import NoReturn

LONGEST = 200  # characters of what it says


class Crashed(Exception):
    """The process has ended without an answer: how."""


def call(function: Callable, *arguments):
    """What a function of a module returns; raises what it raises, and Crashed. Both, and arguments, are pickled; of an
    error that cannot be, RuntimeError has the words. A note of the error says where it happened.

    What the process says on its streams is dropped, but for the last line where it ends by itself.
    """
    command = [sys.executable, "-P", __file__]
    with (
        tempfile.TemporaryFile() as said,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said
        ) as child,
    ):
        try:
            with contextlib.suppress(BrokenPipeError):  # it has ended, and says so below
                for part in (sys.path, (function, arguments)):
                    pickle.dump(part, child.stdin)
                child.stdin.flush()  # and stays open: its end is that of this process
            answer = child.stdout.read()
        except BaseException:  # Ctrl-C
            child.kill()
            raise
        if child.wait() or not answer:
            said.seek(0)
            raise Crashed(ending(child.returncode, said.read().decode(errors="replace")))
    returned, value = pickle.loads(answer)
    if not returned:
        raise value
    return value


def ending(code: int, said: str) -> str:
    if code < 0:
        return f"it crashed ({signal.Signals(-code).name})"
    last = said.strip().rpartition("\n")[2][:LONGEST]
    return f"it ended with {code}" + (f" ({last})" if last else "")


def answer() -> NoReturn:
    """The other process."""
    # Libraries print: that is not the answer.
    with open(os.dup(1), "wb") as file:
        os.dup2(2, 1)
        sys.path[:] = pickle.load(sys.stdin.buffer)
        function, arguments = pickle.load(sys.stdin.buffer)
        threading.Thread(target=end_with_parent, daemon=True).start()
        try:
            text = pickle.dumps((True, function(*arguments)))
        except Exception as error:
            text = pickle.dumps((False, sendable(error)))
        file.write(text)
    os._exit(0)  # without waiting for threads of a library


def sendable(error: Exception) -> Exception:
    """With a note of where it happened; one of its words alone where it cannot be pickled, or not be read again."""
    error.add_note(f"In a process of its own:\n{traceback.format_exc()}")
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        plain = RuntimeError(f"{type(error).__name__}: {error}")
        plain.add_note(error.__notes__[-1])
        return plain
    return error


def end_with_parent() -> NoReturn:
    while os.read(0, 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    answer()

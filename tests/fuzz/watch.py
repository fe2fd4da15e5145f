"""What is stuck in C, where no handler of Python's runs, is told and killed by a small process beside this one."""

import contextlib
import faulthandler
import os

from bert_jax.runs.watchdog import STACKS, Guardian
from fuzz.attempts import STUCK

LONGEST_NOTE = 2000  # characters; a pipe takes a whole line


@contextlib.contextmanager
def watched():
    """Yields what is told of every try before it begins. A hang ends this process (137) with the try's note and its
    stacks on standard error, as that is now: a try has another."""
    with Guardian({}) as guardian, open(os.dup(2), "w") as err:
        faulthandler.register(STACKS, file=err, all_threads=True, chain=False)

        def begin(note: str) -> None:
            line = f"a try took longer than {STUCK} s: {note}"
            guardian.tell(f"{STUCK} {ascii(line)[1:-1][:LONGEST_NOTE]}\n")

        yield begin

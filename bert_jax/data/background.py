"""Work in a thread beside training: cancelled when it is not needed any more, and before the interpreter ends."""

import atexit
import contextlib
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future

NICE = 19  # priority of what is done in the background: what others leave


class Background:
    """Calls work(cancelled) in the background."""

    def __init__(self, work: Callable):
        self.stop, self.future = threading.Event(), Future()
        # A daemon, because Python waits for other threads before it calls what cancels this one.
        self.thread = threading.Thread(target=self.run, args=(work,), daemon=True)
        self.thread.start()
        atexit.register(self.cancel)

    def run(self, work: Callable) -> None:
        if sys.platform == "linux":  # elsewhere a thread has no priority of its own
            # The cores belong to training; on two of them an index took a quarter of its speed.
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
        try:
            self.future.set_result(work(self.stop.is_set))
        except BaseException as error:  # it is raised again where the result is asked for
            self.future.set_exception(error)

    def result(self):
        """What `work` returned or raised, once it has."""
        atexit.unregister(self.cancel)
        return self.future.result()

    def cancel(self) -> None:
        atexit.unregister(self.cancel)
        self.stop.set()
        self.thread.join()

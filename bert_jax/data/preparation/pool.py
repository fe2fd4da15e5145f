"""The process pool of `prepare`: ordered results, a bounded queue, and no processes left behind."""

import contextlib
import functools
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import connection, get_context, parent_process


def cores() -> int:
    """Returns the number of cores that this process may use; on macOS, all cores."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


@contextlib.contextmanager
def workers(number: int) -> Iterator[Callable]:
    """Yields a function run(function, items) -> results in the order of the items.

    number: of worker processes. 0 starts one for each core. 1 starts none, and works in this process.

    Workers are spawned, not forked: JAX and TensorFlow run threads, and a fork would copy their locks.
    """
    number = number or cores()
    if number == 1:
        yield map
        return
    pool = ProcessPoolExecutor(number, get_context("spawn"), initializer=start_worker)
    try:
        yield functools.partial(run_in_order, pool, 2 * number + 1)
    finally:
        pool.shutdown(cancel_futures=True)


def run_in_order(pool: Executor, limit: int, function: Callable, items: Iterable) -> Iterator:
    """Works like map, but holds at most `limit` pending items and results at any time."""
    pending = deque()
    for item in items:
        pending.append(pool.submit(function, item))
        if len(pending) >= limit:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()


def start_worker() -> None:
    """Initializes a worker: it ignores Ctrl-C, exits when its parent does, and tokenizes in one thread."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    threading.Thread(target=end_with_parent, daemon=True).start()


def end_with_parent() -> None:
    """Waits until the parent process has ended, then exits this process."""
    connection.wait([parent_process().sentinel])
    os._exit(1)

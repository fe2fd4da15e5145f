"""Processes that work for prepare: results in order, a bounded number under way, none left behind."""

import contextlib
import functools
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import connection, get_context, parent_process


def cores() -> int:
    """Cores this process may use; macOS does not tell."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


@contextlib.contextmanager
def workers(number: int) -> Iterator[Callable]:
    """run(function, items) -> results in the order of the items, from `number` processes; 0 is one a core.

    Processes are spawned: JAX and TensorFlow run threads, and a fork would copy their locks.
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


def run_in_order(
    pool: ProcessPoolExecutor, most: int, function: Callable, items: Iterable
) -> Iterator:
    """Like map, with at most `most` items or results under way, whatever the number of items."""
    waiting = deque()
    for item in items:
        waiting.append(pool.submit(function, item))
        if len(waiting) >= most:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def start_worker() -> None:
    """A worker leaves Ctrl-C to its parent, ends when the parent is gone, and uses one thread."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    threading.Thread(target=end_with_parent, daemon=True).start()


def end_with_parent() -> None:
    connection.wait([parent_process().sentinel])
    os._exit(1)

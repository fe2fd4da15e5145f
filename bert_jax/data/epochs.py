"""Opens the rows of a split's epochs when they are needed, the next epoch's in the background."""

import contextlib
import functools
import threading


class Epochs:
    """The rows of the epochs of one split of a Dataset, in one phase. Several threads may use it.

    Every epoch has as many rows as epoch 0. A shorter epoch wraps around; surplus rows are dropped.
    """

    def __init__(self, dataset, phase, split: str):
        self.rows = functools.partial(dataset.rows, phase, split)
        self.opened = {}
        self.opening = threading.Lock()

    def open(self, epoch: int):
        """Returns the rows of an epoch. Waits if another thread opens one."""
        if epoch not in self.opened:
            with self.opening:
                if epoch not in self.opened:
                    self.opened[epoch] = self.rows(epoch)
        return self.opened[epoch]

    def move(self, first: int, now: int, final: int) -> None:
        """Opens the epochs after `now` in a thread that ends with the process: as many as those from `first` to `now`,
        none after `final`. The caller of `open` gets its errors. Closes epochs before first - 1, whose files a host
        that is some steps behind still maps."""
        for number in list(self.opened):  # a copy, since another thread may add an epoch
            if 0 < number < first - 1:  # the number of rows of epoch 0 is used for every epoch
                del self.opened[number]
        epochs = range(now + 1, min(2 * now + 1 - first, final) + 1)

        def work() -> None:
            with contextlib.suppress(Exception):
                for epoch in epochs:
                    self.open(epoch)

        if epochs:
            threading.Thread(target=work, daemon=True).start()

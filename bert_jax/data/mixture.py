"""Mixtures of the sources of a store: in which order their rows come. Pure NumPy.

Each source has rows and epochs of its own. A mixture has a factor for each: the text of a source with factor 2 is seen
twice as often as that of one with factor 1. So the share of a source is in proportion to factor x rows. Row n of a
phase is (source, its epoch, its row) by arithmetic: the sources are evenly interleaved in periods of PERIOD rows, the
same ones again and again. Each source goes on where the phases before stopped that have rows of the same shape,
whatever their mixtures.

K sources, N steps.
"""

from functools import partial

import numpy as np

from bert_jax import prng
from bert_jax.checks import is_heldout_by_hash, source_names, split_list
from bert_jax.data.dataset import Dataset
from bert_jax.data.order import Order
from bert_jax.data.store import SPLITS, Store
from bert_jax.errors import BadInput

PERIOD = 1 << 20
EPOCHS = 8  # of the source with the shortest ones, whose rows are read at a time
TEMPERATURE = "tokens^"
MAX_FACTOR = 1e6  # factor
DEFAULTS = {
    # how often the text of each source of corpus.source is seen, by its name: fi:3.7,en:0.13 (a source that is left out
    # has 1; 0: not at all), or by a temperature, optionally followed by factors: tokens^0.7 or tokens^0.7,la:0. The
    # text is not repeated on disk. '': all of it alike
    "mixture": ""
}
PHASE_DEFAULTS = {
    "mixture": ""  # how often the text of each source is seen in this phase; '': as task.mixture
}

# --- Factors --------------------------------------------------------------------------------------


def check(config) -> None:
    """Raises BadInput for the first mixture that names no source of the corpus, or leaves nothing of it."""
    texts = {"task.mixture": config.task.mixture}
    texts |= {f"phases.{name}.mixture": phase.mixture for name, phase in config.phases.items()}
    tokens = dict.fromkeys(filter(None, source_names(config)), 1)
    for key, text in texts.items():
        try:
            factors(tokens, text)
        except ValueError as error:
            raise BadInput(f"config.{key}={text!r}: {error}") from None


def factors(tokens: dict[str, int], text: str) -> dict[str, float]:
    """Returns {source: factor} of a mixture, without the sources that it leaves out; {} for ''.

    tokens: those of each source that has a name.
    text: `fi:3.7,en:0.13`, where a source that is not named has 1, and 0 leaves one out; or `tokens^0.7`, with which
        the share of a source is as this power of its tokens, alone or in front of factors.

    Raises ValueError.
    """
    if not text:
        return {}
    if not tokens:
        raise ValueError("expected names in config.corpus.source: NAME=PATH,...")
    result = dict.fromkeys(tokens, 1.0)
    texts = split_list(text)
    if text.startswith(TEMPERATURE):
        power = number(texts.pop(0).removeprefix(TEMPERATURE))
        least = min(tokens.values())
        result = {name: (count / least) ** (power - 1) for name, count in tokens.items()}
    parts = [part.partition(":") for part in texts]
    for name, _, factor in parts:
        if name not in tokens:
            raise ValueError(f"{name!r} is not one of the sources {', '.join(tokens)}")
        result[name] *= number(factor)
    if len({name for name, *_ in parts}) < len(parts):
        raise ValueError("a source has two factors")
    result = {name: factor for name, factor in result.items() if factor}
    if not result:
        raise ValueError("leaves no source")
    return result


def number(text: str) -> float:
    """Returns a number that is not negative and at most MAX_FACTOR; raises ValueError."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= MAX_FACTOR:
        raise ValueError(f"{text!r}: expected a number, as in fi:3.7,en:0.13 or tokens^0.7")
    return value


def tokens_of(sources: list[dict]) -> dict[str, int]:
    """Returns the training tokens of each source that has a name. sources: as in a store's manifest."""
    return {each["name"]: each["tokens"][SPLITS[0]] for each in sources if "name" in each}


def shares(config, sources: list[dict]) -> dict[str, float]:
    """Returns the share of each source in the tokens of a run with `task.mixture`; {} without one."""
    tokens = tokens_of(sources)
    chosen = factors(tokens, config.task.get("mixture", ""))
    total = sum(factor * tokens[name] for name, factor in chosen.items())
    return {name: factor * tokens[name] / total for name, factor in chosen.items()}


def fields(config, store: Store | None) -> dict:
    """Returns `splits` and `factors` of a Dataset of running text: if sources have names, the held-out text of each is
    evaluated by itself, too."""
    splits = SPLITS
    names = source_names(config)
    if len(names) > 1 and all(names) and is_heldout_by_hash(config):
        splits += tuple(f"{SPLITS[1]}_{name}" for name in names)
    sources = store.manifest["sources"] if store else []
    return {"splits": splits, "factors": partial(factors, tokens_of(sources))}


# --- Rows -----------------------------------------------------------------------------------------


class Period:
    """The sources of consecutive rows, about PERIOD of them. shares: float[K], of each; at least one row of any."""

    def __init__(self, shares: np.ndarray):
        counts = np.maximum(np.rint(shares * PERIOD), shares > 0)
        self.counts = counts.astype(np.int64)  # rows of each source
        source = np.repeat(np.arange(len(shares)), self.counts)
        firsts = np.cumsum(self.counts) - self.counts
        rank = np.arange(len(source)) - firsts[source]
        # The k-th row of a source has a random place in the k-th of as many equal parts as it has rows.
        key = np.full(1, prng.key(prng.PURPOSE["mixture"]))
        bits = prng.fold(prng.fold(key, source.astype(np.uint32)), rank.astype(np.uint32))
        places = (rank + prng.uniform(bits)) / self.counts[source]
        order = np.argsort(places, kind="stable")
        self.source = source[order]
        self.rank = rank[order]

    def locate(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the source of each row, and its number among the rows of this source, int64[...] each."""
        periods, places = np.divmod(numbers, len(self.source))
        source = self.source[places]
        return source, periods * self.counts[source] + self.rank[places]

    def taken(self, rows: int) -> np.ndarray:
        """Returns int64[K]: how many of the first `rows` rows are of each source."""
        periods, rest = divmod(rows, len(self.source))
        return periods * self.counts + np.bincount(self.source[:rest], minlength=len(self.counts))


class Mixed:
    """The rows of the sources of a split in one phase, as an Order has those of a split.

    Raises BadInput if a source has fewer rows than a batch.
    """

    sizes = None

    def __init__(self, dataset: Dataset, phase, split: str, seed: int):
        self.phase = phase
        self.batch = phase.batch
        mixtures = [mixture for *_, mixture in phase.before] + [phase.mixture]
        names = {name: None for mixture in mixtures for name in dataset.factors(mixture)}
        self.orders = {}
        for name in names:
            alone = phase._replace(before=())
            order = Order(dataset, alone, f"{split}_{name}", seed, phase.batch)
            if name in dataset.factors(phase.mixture) and order.count < phase.batch:
                raise BadInput(
                    f"config.phases.{phase.name}.batch={phase.batch}: the source {name} has {order.count} rows of"
                    f" {phase.length} tokens; reduce it, or leave the source out by {name}:0 in the mixture"
                )
            self.orders[name] = order
        self.shape = order.shape
        self.counts = np.array([order.count for order in self.orders.values()])

        def period(mixture: str) -> Period:
            shares = dataset.factors(mixture)
            weights = np.array([shares.get(name, 0) for name in names]) * self.counts
            return Period(weights / weights.sum())

        self.starts = np.zeros(len(names), np.int64)  # rows of each source in earlier phases
        for steps, batch, mixture in phase.before:
            self.starts += period(mixture).taken(steps * batch)
        self.period = period(phase.mixture)
        # Windows bound how many epochs are open at a time.
        rows = self.counts * len(self.period.source) / np.maximum(self.period.counts, 1)
        self.epoch_steps = self.left = max(1, EPOCHS * int(rows.min()) // phase.batch)

    def taken(self, steps: int) -> np.ndarray:
        """Returns int64[K]: the rows of each source before a step of the phase, those of earlier phases included."""
        return self.starts + self.period.taken(int(steps) * self.batch)

    def take(self, steps: np.ndarray, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the rows at these positions of the batches of steps, [N, P, ...], and the key of each, uint32."""
        places = steps[:, None] * self.batch + positions
        sources, numbers = self.period.locate(places.ravel())
        numbers += self.starts[sources]
        epochs, numbers = np.divmod(numbers, self.counts[sources])
        rows = np.empty((len(numbers), *self.shape), np.int64)
        keys = np.empty(len(numbers), np.uint32)
        groups, group, sizes = np.unique(
            np.stack([sources, epochs]), axis=1, return_inverse=True, return_counts=True
        )
        where = np.split(np.argsort(group, kind="stable"), np.cumsum(sizes)[:-1])
        orders = [*self.orders.values()]
        for (source, epoch), chosen in zip(groups.T.tolist(), where, strict=True):
            rows[chosen], keys[chosen] = orders[source].read(numbers[chosen], epoch)
        return rows.reshape(*places.shape, *self.shape), keys.reshape(places.shape)

    def open_next(self, steps: np.ndarray, last: int) -> None:
        """Opens epochs in the background that steps after `steps` need, up to the step `last`; closes earlier ones."""
        first = self.taken(steps[0]) // self.counts
        now = self.taken(steps[-1] + 1) // self.counts
        final = (self.taken(last + 1) - 1) // self.counts
        for order, *epochs in zip(self.orders.values(), first, now, final, strict=True):
            order.epochs.move(*map(int, epochs))

    def describe(self, tokens: dict[str, int]) -> str:
        """Returns a line with the share of each source in the tokens of the phase, and its passes in the phase.

        tokens: of each source.
        """
        rows = self.period.taken((self.phase.stop - self.phase.first) * self.batch)
        passes = rows / self.counts
        seen = passes * [tokens[name] for name in self.orders]
        parts = [
            f"{name} {share:.1%} ({times:.3g} passes)"
            for name, share, times in zip(self.orders, seen / seen.sum(), passes, strict=True)
        ]
        return f"mixture of the tokens of {self.phase.name}: {', '.join(parts)}"

"""Mixtures of the sources of a store: in which order their rows come. Pure NumPy.

Each source has rows and epochs of its own. A mixture has a factor for each: how often its text is seen, beside a source
with factor 1, so that its share is as factor x rows, and therefore as factor x tokens. Row n of a phase is (source, its
epoch, its row) by arithmetic: the sources are evenly interleaved in periods of PERIOD rows, the same ones again and
again. Each source goes on where the phases before stopped that have rows of the same shape, whatever their mixtures.

K sources, N steps.
"""

import sys

import numpy as np

from bert_jax import prng
from bert_jax.config_checks import is_heldout_by_hash, source_names, split_list
from bert_jax.data.dataset import Dataset
from bert_jax.data.order import Order
from bert_jax.data.store import SPLITS, Store
from bert_jax.errors import BadInput

PERIOD = 1 << 16
PASSES = 40  # over a source, beyond which there is a warning
TEMPERATURE = "tokens^"


DEFAULTS = {
    # how often the text of each source of corpus.source is seen, by its name: fi:3.7,en:0.13 (a source that is left out
    # has 1; 0: not at all), or by a temperature: tokens^0.7. The text is not repeated on disk. '': all of it alike
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
    text: `fi:3.7,en:0.13`, where a source that is not named has 1, and 0 leaves one out; or
        `tokens^0.7`, a temperature, with which the share of a source is as this power of its tokens.

    Raises ValueError.
    """
    if not text:
        return {}
    if not tokens:
        raise ValueError("expected names in config.corpus.source: NAME=PATH,...")
    if text.startswith(TEMPERATURE):
        power = number(text.removeprefix(TEMPERATURE))
        return {name: count ** (power - 1) for name, count in tokens.items() if count}
    result = dict.fromkeys(tokens, 1.0)
    for part in split_list(text):
        name, _, factor = part.partition(":")
        if name not in tokens:
            raise ValueError(f"{name!r} is not one of the sources {', '.join(tokens)}")
        result[name] = number(factor)
    result = {name: factor for name, factor in result.items() if factor}
    if not result:
        raise ValueError("leaves no source")
    return result


def number(text: str) -> float:
    """Returns a finite number that is not negative; raises ValueError."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < np.inf:
        raise ValueError(f"{text!r}: expected a number, as in fi:3.7,en:0.13 or tokens^0.7")
    return value


def splits(config) -> tuple[str, ...]:
    """Returns the splits of the task: if sources have names, the held-out text of each is evaluated by itself, too."""
    names = source_names(config)
    if len(names) > 1 and all(names) and is_heldout_by_hash(config):
        return *SPLITS, *(f"{SPLITS[1]}_{name}" for name in names)
    return SPLITS


def tokens_of(store: Store | None) -> dict[str, int]:
    """Returns the training tokens of each source that has a name."""
    if store is None:
        return {}
    sources = store.manifest["sources"]
    return {each["name"]: each["tokens"][SPLITS[0]] for each in sources if each.get("name")}


# --- Rows -----------------------------------------------------------------------------------------


class Period:
    """The sources of consecutive rows, about PERIOD of them, in the ratio of `weights`, float[K]."""

    def __init__(self, weights: np.ndarray):
        counts = np.rint(weights / weights.sum() * PERIOD)
        self.counts = np.maximum(counts, weights > 0).astype(np.int64)  # rows of each source
        source = np.repeat(np.arange(len(weights)), self.counts)
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
    epoch_steps = left = sys.maxsize  # steps until an epoch ends: each source has epochs of its own

    def __init__(self, dataset: Dataset, phase, split: str, seed: int):
        self.phase = phase
        self.batch = phase.batch
        alone = phase._replace(before=())
        mixtures = [mixture for *_, mixture in phase.before] + [phase.mixture]
        names = {name: None for mixture in mixtures for name in dataset.factors(mixture)}
        self.orders = {
            name: Order(dataset, alone, f"{split}_{name}", seed, phase.batch) for name in names
        }
        self.counts = np.array([order.count for order in self.orders.values()])

        def period(mixture: str) -> Period:
            shares = dataset.factors(mixture)
            return Period(np.array([shares.get(name, 0) for name in names]) * self.counts)

        self.starts = np.zeros(len(names), np.int64)  # rows of each source in earlier phases
        for steps, batch, mixture in phase.before:
            self.starts += period(mixture).taken(steps * batch)
        self.period = period(phase.mixture)
        self.shape = next(iter(self.orders.values())).shape
        self.check()

    def check(self) -> None:
        for name, used, order in zip(
            self.orders, self.period.counts, self.orders.values(), strict=True
        ):
            if used and order.count < self.batch:
                raise BadInput(
                    f"config.phases.{self.phase.name}.batch={self.batch}: the source {name} has {order.count} rows of"
                    f" {self.phase.length} tokens; reduce it, or leave the source out by {name}:0 in the mixture"
                )

    def taken(self, steps: int) -> np.ndarray:
        """Returns int64[K]: the rows of each source before a step of the phase, those of earlier phases included."""
        return self.starts + self.period.taken(int(steps) * self.batch)

    def take(self, steps: np.ndarray, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the rows of steps, [N, len(positions), ...], and the key of each, uint32."""
        sources, numbers = self.period.locate(steps[:, None] * self.batch + positions)
        numbers += self.starts[sources]
        epochs, numbers = np.divmod(numbers, self.counts[sources])
        rows = np.empty((*numbers.shape, *self.shape), np.int64)
        keys = np.empty(numbers.shape, np.uint32)
        for source, order in enumerate(self.orders.values()):
            for epoch in np.unique(epochs[sources == source]).tolist():
                where = (sources == source) & (epochs == epoch)
                rows[where], keys[where] = order.read(numbers[where], epoch)
        return rows, keys

    def open_next(self, steps: np.ndarray, last: int) -> None:
        """Opens epochs in the background that steps after `steps` need, up to the step `last`; closes earlier ones."""
        first = self.taken(steps[0]) // self.counts
        now = self.taken(steps[-1] + 1) // self.counts
        final = (self.taken(last + 1) - 1) // self.counts
        for order, *epochs in zip(self.orders.values(), first, now, final, strict=True):
            order.epochs.move(*map(int, epochs))

    def describe(self, tokens: dict[str, int]) -> tuple[str, list[str]]:
        """Returns the share of each source in the tokens of the phase and its passes until the end, and warnings."""
        steps = self.phase.stop - self.phase.first
        sizes = np.array([tokens[name] for name in self.orders]) / self.counts
        seen = self.period.taken(steps * self.batch) * sizes
        passes = self.taken(steps) / self.counts
        parts = []
        warnings = []
        for name, share, number in zip(self.orders, seen / seen.sum(), passes, strict=True):
            parts.append(f"{name} {share:.1%} ({number:.3g} passes)")
            if number > PASSES:
                text = f"{number:.0f} passes over {name} by the end of phase {self.phase.name}"
                warnings.append(f"{text}: give it a smaller factor in the mixture")
        return ", ".join(parts), warnings

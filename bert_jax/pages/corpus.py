"""The text of a run's store as charts: lengths, pieces of words, the most frequent words."""

import itertools
import math
from collections import Counter
from html import escape
from pathlib import Path

import numpy as np

from bert_jax.data import store as stores
from bert_jax.errors import BadInput
from bert_jax.pages import charts
from bert_jax.pages.charts import Figures
from bert_jax.pages.history import History

SAMPLE = 1_000_000  # tokens, and sentences, at most, that are counted
BARS = 20
WORDS = 30  # that are shown, the most frequent ones
LOSS_OF_ALL = "lm_loss"  # the metric that is the loss of every token


def describe(figures: Figures, run: History) -> list[str]:
    """Returns the charts of the text that a run is trained on; a sentence if its store is not on this disk."""
    try:
        store = stores.open_store(Path(run.config.store))
        if store.fingerprint != run.info["store_fingerprint"]:
            raise BadInput(f"{run.config.store}: not the store of this run")
    except BadInput as error:
        return [f'<p class="faint">no charts of the text: {escape(str(error))}</p>']
    split = store.splits[stores.SPLITS[0]]
    tokenizer = store.tokenizer
    ends = split.sentence_ends[:SAMPLE]
    documents = ends[split.document_ends[split.document_ends <= len(ends)] - 1]
    words = read_words(split.tokens[:SAMPLE], tokenizer)
    counts = Counter(words)
    frequent = Counter()
    for word, count in counts.most_common(2 * WORDS):
        text = tokenizer.decode([*word])
        if any(map(str.isalnum, text)):
            frequent[text] += count
    bars = {
        "tokens of a document": lengths(np.diff(documents, prepend=0)),
        "tokens of a sentence": lengths(np.diff(ends, prepend=0)),
        "pieces of a word": lengths(np.array([*map(len, words)], np.int64)),
        "frequent words": dict(frequent.most_common(WORDS)),
    }
    drawn = [figures.add(charts.bars(bar, "number"), caption) for caption, bar in bars.items()]
    return [f"<p>{escape(bits_per_byte(run, store))}</p>", charts.side_by_side(drawn)]


def lengths(sizes: np.ndarray) -> dict[str, int]:
    """Returns {first to last length: number of such sizes int64[N]}; the last range has the longest hundredth."""
    most = int(np.quantile(sizes, 0.99)) if len(sizes) else 0
    width = math.ceil((most + 1) / BARS)
    stop = most // width + 1
    counts = np.bincount(np.minimum(sizes // width, stop), minlength=stop + 1)
    starts = range(0, stop * width, width)
    names = [f"{start} to {start + width - 1}" if width > 1 else str(start) for start in starts]
    return dict(zip([*names, f"from {stop * width} on"], counts.tolist(), strict=True))


def read_words(tokens: np.ndarray, tokenizer) -> list[tuple]:
    """Returns the pieces of each word; of a vocabulary that marks no words, none."""
    starts = np.flatnonzero(tokenizer.word_starts[tokens])
    if tokenizer.ends:  # the last pieces of words are marked
        starts = starts + 1
    ids = tokens.tolist()
    return [tuple(ids[start:stop]) for start, stop in itertools.pairwise(starts.tolist())]


def bits_per_byte(run: History, store: stores.Store) -> str:
    """Returns about how many bits a causal LM needs for a held-out byte; '' for other runs."""
    split = stores.SPLITS[1]
    nats = run.metrics.get(split, {}).get(LOSS_OF_ALL, np.zeros(0))
    if not len(nats):
        return ""
    tokens = store.splits[split].tokens[:SAMPLE].tolist()
    length = len(store.tokenizer.decode(tokens).encode()) / len(tokens)
    return f"{split}: about {nats[-1] / math.log(2) / length:.3f} bits a byte"

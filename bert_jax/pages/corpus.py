"""The text of a run's store as charts: lengths, pieces of words, the most frequent words."""

import math
import os
from collections import Counter
from html import escape
from pathlib import Path

import numpy as np

from bert_jax.data import store as stores
from bert_jax.errors import BadInput
from bert_jax.pages import charts
from bert_jax.pages.charts import Figures
from bert_jax.pages.history import History
from bert_jax.storage import remote

SAMPLE = 1_000_000  # tokens, and documents or sentences, at most, that are counted
BINS = 40
MOST_PIECES = 8  # of a word; longer ones are counted together
WORDS = 30
LOSS_OF_ALL = "lm_loss"  # the metric that is the loss of every token


def describe(figures: Figures, run: History) -> list[str]:
    """Returns the charts of the text that a run is trained on; a sentence if its store is not on this disk."""
    name = run.config.store
    if not name or remote.is_address(name) or not os.path.isfile(Path(name) / "manifest.json"):
        return [f'<p class="faint">its store is not on this machine: {escape(name or "none")}</p>']
    try:
        store = stores.open_store(name)
        is_same = store.fingerprint == run.info.get("store_fingerprint", store.fingerprint)
        tokenizer = store.tokenizer
    except BadInput as error:
        return [f'<p class="faint">{escape(str(error))}</p>']
    if not is_same:
        return [f'<p class="faint">its store is another one by now: {escape(name)}</p>']
    split = store.splits[stores.SPLITS[0]]
    parts = bits_per_byte(run, store)
    units = ("example", "text") if "labels" in store.manifest else ("document", "sentence")
    for unit, ends in zip(units, ends_of(split), strict=True):
        edges, counts = lengths(ends)
        spec = charts.histogram(edges, counts, (f"tokens of a {unit}", f"{unit}s"))
        caption = f"lengths; the last bar has those of {edges[-2]:,.0f} tokens and more"
        parts.append(figures.add(spec, caption))
    pieces, frequent = words(split.tokens[:SAMPLE], tokenizer)
    if frequent:
        spec = charts.bars(pieces, "share of the words")
        parts.append(figures.add(spec, "pieces of a word"))
        spec = charts.bars(frequent, "share of the words")
        parts.append(figures.add(spec, "the most frequent words"))
    return parts


def bits_per_byte(run: History, store: stores.Store) -> list[str]:
    """Returns a sentence about the held-out loss of a causal LM, [] for other runs. The bytes are those of a sample."""
    split = stores.SPLITS[1]
    nats = run.metrics.get(split, {}).get(LOSS_OF_ALL, np.full(1, np.nan))[-1]
    if np.isnan(nats):
        return []
    tokens = store.splits[split].tokens[:SAMPLE].tolist()
    length = len(store.tokenizer.decode(tokens).encode()) / len(tokens)
    bits = nats / math.log(2) / length
    text = (
        f"{split}: about {bits:.3f} bits a byte, of {nats:.3f} nats and {length:.2f} bytes a token"
    )
    return [f"<p>{escape(text)}</p>"]


def ends_of(split: stores.Split) -> tuple[np.ndarray, np.ndarray]:
    """Returns where each of the first documents, and of the first sentences, ends in tokens, int64[N] each."""
    document_ends = split.document_ends[:SAMPLE]
    return split.sentence_ends[document_ends - 1], split.sentence_ends[:SAMPLE]


def lengths(ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns edges float64[N + 1] and counts int64[N] of the differences of ends; the last count has the longest
    hundredth, too."""
    sizes = np.diff(ends, prepend=0)
    most = max(1, int(np.quantile(sizes, 0.99)))
    step = -(-most // BINS)
    edges = np.arange(0, most + step + 1, step)
    counts, _ = np.histogram(np.minimum(sizes, edges[-1]), edges)
    return edges.astype(np.float64), counts


def words(tokens: np.ndarray, tokenizer) -> tuple[dict[str, float], dict[str, float]]:
    """Returns {number of pieces: share of the words} and {word: share of them} of the most frequent ones; both empty
    if the vocabulary does not mark words."""
    begins = tokenizer.word_starts[tokens]
    if not begins.any():
        return {}, {}
    if tokenizer.ends:  # the pieces that end words are marked
        begins = np.append(True, begins[:-1])
    starts = np.flatnonzero(begins)
    sizes = np.diff(starts, append=len(tokens))
    counts = np.bincount(np.minimum(sizes, MOST_PIECES), minlength=MOST_PIECES + 1)[1:]
    names = [*map(str, range(1, MOST_PIECES)), f"{MOST_PIECES} and more"]
    shares = dict(zip(names, (counts / counts.sum()).tolist(), strict=True))
    spans = zip(starts.tolist(), sizes.tolist(), strict=True)
    chosen = tokens.tolist()
    counter = Counter(tuple(chosen[start : start + size]) for start, size in spans)
    frequent = {}
    for ids, count in counter.most_common(WORDS):
        word = tokenizer.decode([*ids]).strip()
        frequent[word] = frequent.get(word, 0.0) + count / len(starts)
    return shares, {word: share for word, share in frequent.items() if word}

"""Statistics of masks and pairs: BERT's shares, and uniformity, over 100,000 rows; a million with --full.

Chi-square tests compare observed with expected counts; p must be above MIN_P. So the tolerance follows from the number
N of observations: a share s may deviate by about 3.9 sqrt(s (1 - s) / N). For [MASK] among the 1.6 million predictions
of 100,000 rows, that is 0.1 percentage points; for random pairs among 100,000, 0.6. Seeds are fixed, so the results are
the same every time. Each test prints its counts and p (pytest -rP).
"""

import numpy as np
import pytest
from kits import pairs, rows
from kits.stores import SPECIAL, synthetic_store
from scipy.stats import chi2

from bert_jax import prng
from bert_jax.data.dataset import B_START, LABEL
from bert_jax.tasks.text import documents, pair_rows

V, LENGTH, BATCH = 30522, 128, 2048
WORD_STARTS = np.arange(V) % 3 > 0
SPEC = pairs.Spec(seed=3, phase=0, length=LENGTH, batch=BATCH, max_predictions=20)
MIN_P = 1e-4  # of p

sizes = pytest.mark.parametrize("size", [100_000, pytest.param(1_000_000, marks=pytest.mark.full)])


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """8M random tokens in 13,000 documents, about 95,000 rows an epoch."""
    return synthetic_store(tmp_path_factory.mktemp("statistics") / "store", 8_000_000)


def check(what, counts, shares=None, factor=1.0):
    """Checks that counts follow these shares, or are uniform.

    factor: the variance of draws with replacement, divided by the variance of the counts.
    """
    counts = np.asarray(counts, float)
    shares = np.full(len(counts), 1 / len(counts)) if shares is None else np.asarray(shares)
    expected = counts.sum() * shares
    p = chi2.sf(factor * ((counts - expected) ** 2 / expected).sum(), len(counts) - 1)
    print(f"{what}: {counts.sum():,.0f} counted, p = {p:.4f}")
    assert p > MIN_P, (what, counts / counts.sum(), shares)


@pytest.mark.slow
@sizes
def test_masks_have_the_published_shares(store, size):
    """Checks the 80/10/10 replacement, the random tokens, and the chosen positions."""
    room, predictions = LENGTH - 3, SPEC.max_predictions - 1  # of full rows: 0.15 * 128 is 19
    kinds, random_ids, places = np.zeros(3), np.zeros(V), np.zeros(room)
    for batch in pairs.train_batches(store, WORD_STARTS, SPEC, 0, size // BATCH):
        tokens, chosen = rows.unmasked(batch), rows.chosen(batch)
        maskable = (batch["sequence_ids"] > 0) & (tokens != SPECIAL["cls"])
        maskable &= tokens != SPECIAL["sep"]
        full = chosen & (maskable.sum(1) == room)[:, None]
        places += np.bincount((np.cumsum(maskable, 1) - 1)[full], minlength=room)
        shown, target = batch["tokens"][chosen], tokens[chosen]
        other = (shown != SPECIAL["mask"]) & (shown != target)
        kinds += (shown == SPECIAL["mask"]).sum(), other.sum(), (shown == target).sum()
        random_ids += np.bincount(shown[other], minlength=V)
    check("[MASK], random, kept", kinds, [0.8 + 0.1 / V, 0.1 - 0.2 / V, 0.1 + 0.1 / V])
    assert random_ids[SPECIAL["mask"]] == 0 and random_ids[SPECIAL["pad"]] > 0
    check("pieces drawn at random", np.delete(random_ids, SPECIAL["mask"]))
    factor = (room - 1) / (room - predictions)  # positions are drawn without replacement
    check("positions chosen in full rows", places, factor=factor)


def blocks(store, size):
    """Yields the blocks of as many epochs as have about `size` rows."""
    for epoch in range(size // 90_000):
        for numbers in documents.ranges(store.splits["train"]):
            yield pair_rows.open_block(store.splits["train"], SPEC.rules, epoch, numbers)


@sizes
def test_random_pairs_and_splits_of_chunks_are_uniform(store, size):
    chunks, others = [], []
    for block in blocks(store, size):
        chunks.append(pair_rows.find_chunks(block))
        made = pair_rows.make_rows(block, chunks[-1])
        ends = store.splits["train"].sentence_ends[store.splits["train"].document_ends - 1]
        starts = made[made[:, LABEL] == 1, B_START]
        others.append(np.searchsorted(ends, starts, side="right") * 500 // len(ends))
    length, a_size, random = (
        np.concatenate([getattr(part, name) for part in chunks])
        for name in ("size", "a_size", "is_random")
    )
    assert len(length) > 0.9 * size and random[length == 1].all()
    check("random second sentences", np.bincount(random[length > 1]))
    check("documents of random second sentences", np.bincount(np.concatenate(others)))
    for number in (3, 5, 8):
        parted = np.bincount(a_size[length == number], minlength=number)
        assert parted[0] == 0 and len(parted) == number
        check(f"sentences of A of {number}", parted[1:])


@sizes
def test_a_tenth_of_the_target_lengths_is_short(store, size):
    """A tenth of the target lengths are drawn from 2 to a full row; some of these are full rows."""
    room = LENGTH - 3
    targets = [pair_rows.target_lengths(block) for block in blocks(store, 7 * size)]
    counts = np.bincount(np.concatenate(targets), minlength=room + 1)[2:]
    assert counts.sum() > 0.9 * size
    short = 0.1 * (room - 2) / (room - 1)
    check("short rows", [counts[:-1].sum(), counts[-1]], [short, 1 - short])
    check("their lengths", counts[:-1])


@sizes
@pytest.mark.parametrize("more", [3, 0])
def test_the_order_of_rows_is_random(size, more):
    """A row's new position is independent of its old one, and of its neighbour's new position."""
    count = size + more if more else 1 << (size.bit_length() - 1)
    order = prng.shuffle(np.arange(count), count, np.full(1, prng.key(count)))
    assert np.bincount(order, minlength=count).max() == 1
    cells = 64
    before, after = np.arange(count) * cells // count, order * cells // count
    table = np.bincount(before * cells + after, minlength=cells**2).reshape(cells, cells)
    expected = np.outer(table.sum(1), table.sum(0)) / count
    statistic = ((table - expected) ** 2 / expected).sum() * (count - 1) / count
    assert MIN_P < chi2.sf(statistic, (cells - 1) ** 2) < 1 - MIN_P
    steps = np.diff(order) % count
    check("steps between neighbours", np.bincount(steps * 1000 // count, minlength=1000))

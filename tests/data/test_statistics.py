"""A million rows: every share within 0.2 percentage points of the recipe's (FACTS, "BERT, exactly"), and chi-square
tests of everything that is to be uniform. Seeds are fixed, so what passes passes every time. Each prints what it found
beside what is expected (pytest -rP)."""

import numpy as np
import pytest
from kits.stores import SPECIAL, synthetic_store
from scipy.stats import chi2

from bert_jax import prng
from bert_jax.data import rows, stream

V, LENGTH, PREDICTIONS, ROWS, BATCH = 30522, 128, 20, 1_000_000, 2048
WORD_STARTS = np.arange(V) % 3 > 0
SPEC = stream.Spec(3, 0, LENGTH, BATCH, PREDICTIONS, "nsp", "token", 0.15, 0.8, 0.1, 0.1)
LEAST = 1e-4  # of p

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """20M random tokens, 240,000 rows an epoch."""
    return synthetic_store(tmp_path_factory.mktemp("statistics") / "store", 20_000_000)


def near(share, expected):
    return abs(share - expected) < 0.002


def show(what, expected, found):
    print(f"| {what} | {expected} | {found} |")


def percent(*shares):
    return ", ".join(f"{100 * share:.2f} %" for share in shares)


def p_uniform(counts, expected=None):
    """p of counts that should be equal, or as `expected`."""
    counts = np.asarray(counts, float)
    expected = counts.mean() if expected is None else expected
    return chi2.sf(((counts - expected) ** 2 / expected).sum(), len(counts) - 1)


class Ranks:
    """How often each of a row's m candidates was chosen, in the order they stand in the row, for all m."""

    def __init__(self):
        self.counts = np.zeros((LENGTH + 1, LENGTH))
        self.expected, self.variance = np.zeros(LENGTH + 1), np.zeros(LENGTH + 1)

    def add(self, candidates, chosen):
        """bool[B, L] each."""
        m, k = candidates.sum(1), (chosen & candidates).sum(1)
        ranks = np.cumsum(candidates, 1) - 1
        where = np.nonzero(chosen & candidates)
        flat = m[where[0]] * LENGTH + ranks[where]
        self.counts += np.bincount(flat, minlength=self.counts.size).reshape(self.counts.shape)
        # k of m without putting back: the covariance is k (m - k) / (m (m - 1)) (1 - 1/m everywhere).
        np.add.at(self.expected, m, k / np.maximum(m, 1))
        np.add.at(self.variance, m, k * (m - k) / np.maximum(m * (m - 1), 1))

    def p(self, m=None):
        """p that all candidates are as likely, over rows of `m` candidates or of any number."""
        statistic = freedom = 0
        for number in range(2, LENGTH + 1) if m is None else [m]:
            if self.variance[number] > 50:
                apart = self.counts[number, :number] - self.expected[number]
                statistic += (apart**2).sum() / self.variance[number]
                freedom += number - 1
        assert freedom > 0
        return chi2.sf(statistic, freedom)


def unmask(batch):
    """(tokens before masking, bool[B, L] which were chosen)."""
    row, slot = np.nonzero(batch["masked_weights"])
    tokens, chosen = batch["tokens"].copy(), np.zeros(batch["tokens"].shape, bool)
    tokens[row, batch["masked_positions"][row, slot]] = batch["masked_targets"][row, slot]
    chosen[row, batch["masked_positions"][row, slot]] = True
    return tokens, chosen


def words_of_one(tokens, maskable, batch):
    """bool[B, L]: the words of a single token."""
    first_of_b = np.diff(batch["segments"], axis=1, prepend=0) > 0
    starts = maskable & (WORD_STARTS[tokens] | first_of_b)
    starts[:, 1] = True
    goes_on = maskable & ~starts
    return starts & ~np.pad(goes_on, ((0, 0), (0, 1)))[:, 1:]


def measure(store, masking):
    """Sums over ROWS rows of the stream."""
    spec = SPEC._replace(masking=masking)
    kinds, random_ids = np.zeros(3), np.zeros(V)
    lengths, predicted = np.zeros(LENGTH + 1), np.zeros((LENGTH + 1, PREDICTIONS + 1))
    ranks, sample = Ranks(), []
    for batch in stream.train_batches(store, WORD_STARTS, spec, 0, -(-ROWS // BATCH)):
        tokens, chosen = unmask(batch)
        maskable = (batch["sequence_ids"] > 0) & (tokens != SPECIAL["cls"])
        maskable &= tokens != SPECIAL["sep"]
        length, number = batch["sequence_ids"].sum(1), chosen.sum(1)
        np.add.at(predicted, (length, number), 1)
        np.add.at(lengths, length, 1)
        ranks.add(words_of_one(tokens, maskable, batch) if masking != "token" else maskable, chosen)
        shown, target = batch["tokens"][chosen], tokens[chosen]
        other = (shown != SPECIAL["mask"]) & (shown != target)
        kinds += (shown == SPECIAL["mask"]).sum(), other.sum(), (shown == target).sum()
        random_ids += np.bincount(shown[other], minlength=V)
        if len(sample) < 5:
            sample.append((tokens, maskable, batch))
    return kinds, random_ids, lengths, predicted, ranks, sample


def wanted(length):
    return min(PREDICTIONS, max(1, round(0.15 * int(length))))


@pytest.fixture(scope="module", params=["token", "whole_word"])
def measured(request, store):
    return request.param, *measure(store, request.param)


def test_masked_random_and_kept(measured):
    masking, kinds, random_ids, *_ = measured
    shares = kinds / kinds.sum()
    expected = 0.8 + 0.1 / V, 0.1 - 0.2 / V, 0.1 + 0.1 / V
    show(f"{masking}: [MASK], random, kept", percent(*expected), percent(*shares))
    assert kinds.sum() > 15e6 and all(map(near, shares, expected)), shares
    # The three are a multinomial; 0.2 points are far more than its error of 0.01.
    assert p_uniform(kinds, np.array(expected) * kinds.sum()) > LEAST
    assert random_ids[SPECIAL["mask"]] == 0 and random_ids[SPECIAL["pad"]] > 0
    p = p_uniform(np.delete(random_ids, SPECIAL["mask"]))
    show(f"{masking}: pieces drawn at random", "uniform", f"p = {p:.2f}")
    assert p > LEAST


def test_places_are_chosen_evenly(measured):
    """Places in the row of the tokens; of the words of one token where words are chosen whole, as
    larger ones may not fit."""
    masking, _, _, lengths, _, ranks, _ = measured
    assert lengths.sum() >= ROWS
    show(f"{masking}: places of those chosen", "uniform", f"p = {ranks.p():.2f}")
    assert ranks.p() > LEAST
    assert ranks.p(LENGTH - 3 if masking == "token" else 40) > LEAST


def test_number_of_predictions(measured):
    masking, _, _, lengths, predicted, _, sample = measured
    numbers = predicted @ np.arange(PREDICTIONS + 1)
    for length in np.flatnonzero(lengths):
        if masking == "token":
            assert predicted[length, wanted(length)] == lengths[length]
        assert not predicted[length, wanted(length) + 1 :].any()
    full = lengths > 5000
    share = (numbers / np.maximum(lengths, 1) / np.maximum(np.arange(LENGTH + 1), 1))[full]
    recipe = [wanted(length) / length for length in np.flatnonzero(full)]
    if masking == "token":
        worst = np.argmax(np.abs(share - recipe))
        show("token: share chosen, the worst length", percent(recipe[worst]), percent(share[worst]))
        assert all(map(near, share, recipe))
    else:
        # Words that no longer fit are passed over: the original's own loop on some of the rows.
        theirs = np.mean([len(original(*row)) / row[2] for row in sampled(sample)])
        ours = numbers.sum() / (lengths * np.arange(LENGTH + 1)).sum()
        show("whole_word: share chosen, by the original's loop", percent(theirs), percent(ours))
        assert abs(theirs - ours) < 0.002 and theirs < 0.15


def sampled(sample):
    """(word sizes, seed, row length) of the rows of some batches."""
    for tokens, maskable, batch in sample:
        starts = maskable & (
            WORD_STARTS[tokens] | np.diff(batch["segments"], axis=1, prepend=0) > 0
        )
        starts[:, 1] = True
        for row, places in enumerate(maskable):
            inside = starts[row][places]
            sizes = np.diff(np.append(np.flatnonzero(inside), len(inside)))
            yield sizes, row, batch["sequence_ids"][row].sum()


def original(sizes, seed, length):
    """create_masked_lm_predictions: words in random order until there are enough."""
    chosen = []
    for word in np.random.default_rng(seed).permutation(len(sizes)):
        if len(chosen) >= wanted(length):
            break
        if len(chosen) + sizes[word] <= wanted(length):
            chosen += [word] * sizes[word]
    return chosen


@pytest.fixture(scope="module")
def chunks(store):
    """(split, block, chunks) of five epochs."""
    split, rules = store.splits["train"], SPEC.rules
    return [
        (split, epoch, block, rows.find_chunks(split, rules, epoch, block))
        for epoch in range(5)
        for block in rows.blocks(split, rules, epoch)
    ]


def test_random_pairs_and_the_parting_of_chunks(chunks):
    size, a_size, random = (
        np.concatenate([getattr(part[3], name) for part in chunks])
        for name in ("size", "a_size", "random")
    )
    assert len(size) > ROWS and random[size == 1].all()
    show("random second sentences", percent(0.5), percent(random[size > 1].mean()))
    assert near(random[size > 1].mean(), 0.5)
    assert p_uniform(np.bincount(random[size > 1])) > LEAST
    for number in (2, 3, 5, 8):
        sizes = np.bincount(a_size[size == number], minlength=number)
        assert sizes[0] == 0 and len(sizes) == number
        if number > 2:
            assert p_uniform(sizes[1:]) > LEAST


def test_random_b_comes_from_everywhere(chunks):
    split = chunks[0][0]
    starts = []
    for _, epoch, block, found in chunks:
        made = rows.make_rows(split, SPEC.rules, epoch, block, found)
        starts.append(made.b_start[made.label == 1])
    ends = split.sentence_ends[split.document_ends - 1]
    document = np.searchsorted(ends, np.concatenate(starts), side="right")
    assert len(document) > ROWS / 2
    p = p_uniform(np.bincount(document, minlength=len(ends)))
    show("documents of random second sentences", "uniform", f"p = {p:.2f}")
    assert p > LEAST


def test_short_targets(store):
    split, rules = store.splits["train"], SPEC.rules
    room = LENGTH - 3
    targets = np.concatenate(
        [
            rows.target_lengths(split, rules, epoch, block)
            for epoch in range(30)
            for block in rows.blocks(split, rules, epoch)
        ]
    )
    assert len(targets) > 950_000
    short = np.bincount(targets, minlength=room + 1)[2:-1]
    share, expected = short.sum() / len(targets), 0.1 * (room - 2) / (room - 1)
    show("short rows", percent(expected), percent(share))
    assert near(share, expected)
    assert p_uniform(short) > LEAST


@pytest.mark.parametrize("count", [1_000_003, 1 << 20])
def test_the_order_of_rows(count):
    """Where a row goes has nothing to do with where it stood, nor with where its neighbour goes."""
    order = prng.shuffle(np.arange(count), count, np.full(1, prng.key(count)))
    assert np.bincount(order, minlength=count).max() == 1
    cells = 64
    before, after = np.arange(count) * cells // count, order * cells // count
    table = np.bincount(before * cells + after, minlength=cells**2).reshape(cells, cells)
    expected = np.outer(table.sum(1), table.sum(0)) / count
    statistic = ((table - expected) ** 2 / expected).sum() * (count - 1) / count
    assert LEAST < chi2.sf(statistic, (cells - 1) ** 2) < 1 - LEAST
    steps = np.diff(order) % count
    assert p_uniform(np.bincount(steps * 1000 // count, minlength=1000)) > LEAST

"""Mixtures of sources: shares, passes, epochs of each source, and what a mixture may not be."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from kits import corpora
from kits import rows as kit
from kits.rows import check_starts_and_hosts
from kits.small import small_config
from kits.stores import make_store, random_documents

from bert_jax.checks import sources
from bert_jax.data import mixture, stream
from bert_jax.data.dataset import Survey
from bert_jax.data.mixture import PERIOD, Mixed, Period
from bert_jax.errors import BadInput
from bert_jax.runs import preflight
from bert_jax.tasks.text import full_sentences, packed_documents, sentence_pairs, token_blocks

COUNTS = {"fi": 300, "en": 3000, "sv": 1000}  # documents
FACTORS = "fi:3.7,en:0.13"
TASKS = {
    "packed_documents": packed_documents,
    "token_blocks": token_blocks,
    "full_sentences": full_sentences,
    "sentence_pairs": sentence_pairs,
}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("mixture") / "store"
    train = random_documents(sum(COUNTS.values()), sentences=10, words=20)
    heldout = random_documents(9, seed=1)
    sources = {"train": [*COUNTS.values()], "heldout": [3, 3, 3]}
    return make_store(path, train, heldout, kit.V, sources, [*COUNTS])


def settings(length=64, **task):
    config = kit.settings(length, cross_documents=True, pair_task="none", short_rate=0.0, **task)
    config.corpus.source = "fi=a,en=b,sv=c"
    return config


def tokens_of(store):
    return mixture.tokens_of(store.manifest["sources"])


def dataset_of(store, name="packed_documents"):
    task = TASKS[name]
    words = {} if name == "token_blocks" else {"word_starts": kit.WORD_STARTS}
    return task.make(settings(), store, **words)


def phase(text=FACTORS, batch=16, **fields):
    shape = kit.phase(64, batch, 12, max_packed=1)
    return shape._replace(mixture=text, **fields)


def ends_of(store, name) -> np.ndarray:
    """Returns where each source ends, in the stream of a task or, for pairs, in tokens."""
    split = store.splits["train"]
    last = split.source_ends - 1
    ends = split.sentence_ends[split.document_ends[last] - 1]
    width = {"packed_documents": 2, "sentence_pairs": 0}.get(name, 1)
    return ends + width * split.source_ends - (width > 0)


def test_sources_are_evenly_interleaved():
    weights = np.array([3.0, 0.001, 1.2, 0]) / 4.201
    period = Period(weights)
    source, number = period.locate(np.arange(200_000))
    expected = np.arange(1, 200_001)[:, None] * weights
    seen = (source[:, None] == np.arange(4)).cumsum(axis=0)
    assert np.abs(seen - expected).max() < 2
    assert Period(np.array([1.0, 1e-9])).counts.tolist() == [PERIOD, 1]
    for each in range(3):
        assert (number[source == each] == np.arange((source == each).sum())).all()
    assert all((period.taken(rows) == seen[rows - 1]).all() for rows in (1, 777, 199_999))


@pytest.mark.parametrize("name", TASKS)
def test_shares_are_those_of_factors_times_tokens(store, name):
    """Over three epochs of the whole; the rows of each source come once in each of its epochs."""
    dataset = dataset_of(store, name)
    mixed = Mixed(dataset, phase(), "train", 1)
    steps = 3 * int(mixed.counts.sum()) // 16
    rows, keys = mixed.take(np.arange(steps), np.arange(16))
    rows = rows.reshape(steps * 16, -1)
    ends = ends_of(store, name)
    sources = np.searchsorted(ends, rows[:, 0], "right")
    tokens = tokens_of(store)
    weights = np.array([3.7, 0.13, 1]) * list(tokens.values())
    seen = np.bincount(sources, weights=rows[:, 1])
    # Rows of pairs have any size, and those of half an epoch are not exactly half of its tokens.
    tolerance = 2e-2 if name == "sentence_pairs" else 5e-3
    assert seen / seen.sum() == pytest.approx(weights / weights.sum(), rel=tolerance)
    for number, count in enumerate(mixed.counts):
        of_source = rows[sources == number]
        epoch = of_source[: count * (len(of_source) // count)].reshape(-1, count, rows.shape[1])
        # An epoch may have some rows more or less than the first; as many are left out or come twice.
        least = {"full_sentences": 0.98 * count, "packed_documents": count - 1}.get(name, count)
        assert all(len(np.unique(part[:, 0])) >= least for part in epoch)
    assert len(np.unique(keys)) > 0.99 * keys.size


def test_any_start_and_any_hosts_have_the_same_batches(store):
    made = phase(batch=8)
    pipeline = partial(stream.Pipeline, dataset_of(store), made, "train", 1, 8)

    def batches(first, last, positions=None):
        return list(stream.batches(pipeline(positions), first, last))

    check_starts_and_hosts(batches, 60)


def test_sources_go_on_in_the_next_phase_whatever_its_mixture(store):
    """Together the rows of both phases are each source's epochs, one after the other."""
    dataset = dataset_of(store)
    first = phase()
    second = phase("tokens^0.5", 8, before=((40, 16, FACTORS),))
    parts = [Mixed(dataset, first, "train", 1), Mixed(dataset, second, "train", 1)]
    assert (parts[1].starts == parts[0].taken(40)).all()
    rows = [
        part.take(np.arange(steps), np.arange(part.batch))[0].reshape(-1, 2)
        for part, steps in zip(parts, (40, 30), strict=True)
    ]
    rows = np.concatenate(rows)
    sources = np.searchsorted(ends_of(store, "packed_documents"), rows[:, 0], "right")
    for number, count in enumerate(parts[0].counts):
        assert len({*map(tuple, rows[sources == number][:count])}) == min(
            count, (sources == number).sum()
        )


def test_a_source_that_is_left_out_does_not_come(store):
    mixed = Mixed(dataset_of(store), phase("fi:0"), "train", 1)
    rows, _ = mixed.take(np.arange(50), np.arange(16))
    sources = np.searchsorted(ends_of(store, "packed_documents"), rows[..., 0].ravel(), "right")
    assert {*sources} == {1, 2} and [*mixed.orders] == ["en", "sv"]


def test_passes_and_few_rows_are_named(store):
    dataset = dataset_of(store)
    mixed = Mixed(dataset, phase("fi:90,en:0,sv:0.1", stop=5000), "train", 1)
    survey = SimpleNamespace(survey=lambda phase: Survey(1.0, "full", []))
    tokens = tokens_of(store)
    feed = SimpleNamespace(key="store", dataset=survey, mixed=lambda: [mixed, mixed], tokens=tokens)
    lines = preflight.check_data(small_config(), feed)
    lines = [line for line in lines if "mixture of the tokens of main: fi 99." in line]
    assert len(lines) == 2
    with pytest.raises(BadInput, match="the source fi has .* rows of 64 tokens"):
        Mixed(dataset, phase(batch=5000), "train", 1)
    # A source of earlier phases alone may have fewer.
    later = phase("fi:0,sv:0", 1000, before=((5, 16, FACTORS),))
    assert Mixed(dataset, later, "train", 1).starts[0] > 0
    long = phase()._replace(length=100_000)  # more than a block of the smallest source
    with pytest.raises(BadInput, match="the source fi has 0 rows"):
        Mixed(dataset_of(store, "token_blocks"), long, "train", 1)


WRONG = {
    "no:2": "'no' is not one of the sources fi, en",
    "fi": "expected a number",
    "fi:-1": "expected a number",
    "fi:nan": "expected a number",
    "fi:0,en:0": "leaves no source",
    "fi:2,fi:3": "a source has two factors",
    "fi:1e9": "expected a number",
    "tokens^x": "expected a number",
}


@pytest.mark.parametrize("key", ["task.mixture", "phases.main.mixture"])
@pytest.mark.parametrize("text", WRONG)
def test_wrong_mixtures_are_refused(key, text):
    with pytest.raises(BadInput, match=key) as error:
        small_config("corpus.source=fi=a,en=b", f"{key}={text}")
    assert WRONG[text] in str(error.value)


def test_factors_may_follow_a_temperature():
    """They multiply: 0 leaves a source out, and the others share by their tokens to this power."""
    tokens = {"big": 900, "small": 100, "none": 5}
    found = mixture.factors(tokens, "tokens^0.5,none:0,small:2")
    shares = {name: factor * tokens[name] for name, factor in found.items()}
    assert found.keys() == {"big", "small"}
    assert shares["big"] / shares["small"] == pytest.approx(30 / (2 * 10))


def test_a_name_is_what_comes_before_the_first_sign():
    """Others are of the path, such as those of partitions."""
    config = small_config("corpus.source=fi=d/lang=fi/x,en=/d/lang=en/y")
    assert sources(config) == ["d/lang=fi/x", "/d/lang=en/y"]
    assert sources(small_config("corpus.source=./lang=fi/x,/d/lang=en")) == [
        "./lang=fi/x",
        "/d/lang=en",
    ]


@pytest.mark.parametrize("source", ["fi=a,fi=b", "fi=a,b"])
def test_names_are_of_all_sources_and_differ(source):
    with pytest.raises(BadInput, match="corpus.source"):
        small_config(f"corpus.source={source}")
    with pytest.raises(BadInput, match="expected names in config.corpus.source"):
        small_config("corpus.source=a,b", "task.mixture=a:2")


def test_a_store_holds_out_some_of_each_source_that_has_a_name(tmp_path):
    texts = corpora.make_text(120)
    files = {"big": texts[:110], "small": texts[110:]}
    for name, documents in files.items():
        corpora.write(tmp_path / f"{name}.txt", documents)
    source = ",".join(f"{name}={tmp_path / name}.txt" for name in files)
    config = small_config(f"corpus.source={source}", f"store={tmp_path / 'store'}")
    store = corpora.prepare(config)
    counts = {each["name"]: each["documents"] for each in store.manifest["sources"]}
    assert counts["small"]["heldout"] >= 2 and counts["big"]["heldout"] >= 2
    whole = store.splits["heldout"]
    parts = [store.splits[f"heldout_{name}"].documents for name in files]
    assert [*parts[0], *parts[1]] == [*whole.documents]
    splits = "train", "heldout", "heldout_big", "heldout_small"
    assert mixture.fields(config, store)["splits"] == splits
    few = small_config(f"corpus.source=a={tmp_path / 'big.txt'},b={tmp_path / 'few.txt'}")
    corpora.write(tmp_path / "few.txt", texts[110:113])
    with few.unlocked():
        few.store = str(tmp_path / "other")
    with pytest.raises(BadInput, match="b has 3 distinct documents"):
        corpora.prepare(few)
    assert not (tmp_path / "other").exists()


def test_text_that_is_held_out_by_its_place_is_that_of_no_source(tmp_path):
    texts = corpora.make_text(60)
    parts = {"a": texts[:20], "b": texts[20:40], "other": texts[40:]}
    for name, documents in parts.items():
        corpora.write(tmp_path / f"{name}.txt", documents)
    keys = [f"corpus.source=a={tmp_path}/a.txt,b={tmp_path}/b.txt", f"store={tmp_path}/store"]
    config = small_config(*keys, f"corpus.heldout_source={tmp_path}/other.txt")
    store = corpora.prepare(config)
    assert mixture.fields(config, store)["splits"] == ("train", "heldout")
    assert [*tokens_of(store)] == ["a", "b"] and min(tokens_of(store).values()) > 0
    # All of b, and a part of a.
    keys = [*keys[:1], f"store={tmp_path}/end", "corpus.heldout_by=end", "corpus.heldout=0.9"]
    with pytest.raises(BadInput, match="no document of b to train on"):
        corpora.prepare(small_config(*keys))

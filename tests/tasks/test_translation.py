"""Translation: pairs of texts that are left out, packed rows of pairs, and evaluated rows of one pair."""

import json
import sys

import numpy as np
import pytest
from kits import labelled
from kits.malformed_inputs import refused
from kits.rows import all_rows, assemble, batches, check_starts_and_hosts
from kits.small import overrides

from bert_jax import config as configs
from bert_jax.cli import main
from bert_jax.data import store as stores
from bert_jax.data.dataset import A_SIZE, EXAMPLE
from bert_jax.errors import BadInput
from bert_jax.tasks import base as tasks
from bert_jax.tasks.supervised import examples
from bert_jax.tasks.supervised.texts import locate_texts
from bert_jax.tasks.translation import packing
from bert_jax.tokenizers import tokenizer as tokenizers
from bert_jax.train import pretrain

TASK = {
    "task.name": "translation",
    "phases.main.length": 60,
    "phases.main.batch": 8,
    "tokenizer.size": 120,
    "task.train": "train",
    "task.dev": "dev",
    "task.max_pieces": 40,
    "task.max_ratio": 2.0,
    "objective.name": "translation",
    "model.name": "transformer",
}
COPIES = 3  # pairs of dev that are in train
SOURCE, TARGET = range(2)


def write_pairs(directory) -> None:
    """Writes parallel files. A target has the words of its source in the other order; one in five thrice."""
    sources = labelled.texts(500)
    targets = [" ".join(reversed(text.split())) for text in sources]
    targets[::5] = [f"{text} {text} {text}" for text in targets[::5]]
    dev = range(500 - 40 - COPIES, 500 - COPIES)
    train = [number for number in range(500) if number not in dev]
    dev = [*dev, *range(500 - COPIES, 500)]
    for name, numbers in (("train", train), ("dev", dev)):
        for language, texts in (("source", sources), ("target", targets)):
            lines = "\n".join(texts[number] for number in numbers)
            (directory / f"{name}.{language}").write_text(lines + "\n")


def load(directory, **changes):
    keys = TASK | {"task.data": directory, "store": f"{directory}/store"} | changes
    return configs.load("base", overrides(labelled.KEYS | keys))


def open_dataset(config):
    store = stores.open_store(config.store)
    tasks.fill(config, store)
    return store, tasks.make(config, store), configs.phases(config)[0]


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """The directory of the files and of their store."""
    path = tmp_path_factory.mktemp("pairs")
    write_pairs(path)
    examples.open_or_build(load(path))
    return path


def test_pairs_that_are_left_out_are_counted(directory, capsys):
    """Of the split to train on alone; the report has the numbers, of each column, and of copies."""
    config = load(directory)
    store = stores.open_store(config.store)
    tokenizer = tokenizers.load(store.path / "tokenizer")
    parts, _ = examples.read(config)
    expected = []
    numbers = [0, 0]
    for example in parts["train"]:
        least, most = sorted(map(len, tokenizer.encode(example.texts)))
        numbers[0] += most > 40
        numbers[1] += 40 >= most > 2 * least
        if most <= min(40, 2 * least):
            expected.append(tokenizer.encode(example.texts))
    assert min(numbers) > 5
    train = store.splits["train"]
    starts, sizes = locate_texts(train)
    pairs = np.dstack([starts, starts + sizes]).tolist()
    assert [[train.tokens[a:b].tolist() for a, b in pair] for pair in pairs] == expected
    cleaned = store.manifest["cleaned"]
    for words, number in zip(("40 pieces", "2.0 times"), numbers, strict=True):
        assert [value for reason, value in cleaned.items() if words in reason] == [number]
    assert len(store.splits["dev"].document_ends) == 40 + COPIES
    keys = overrides(labelled.KEYS | TASK | {"task.data": directory, "store": config.store})
    command = ["prepare", "--config", "base", *(f"--config.{key}" for key in keys)]
    assert main([*command, "--json", str(directory / "report.json")]) == 0
    report = json.loads((directory / "report.json").read_text())
    assert report["cleaned"] == cleaned
    assert 0 < report["copies"]["dev"] <= COPIES
    assert report["mean_text"] == sizes.mean() and report["longest_text"] == sizes.max()
    assert report["keys"]["extra_pieces"] == 50


def test_translations_have_room_for_the_longest_of_the_pairs(tmp_path):
    """Targets have twice the bytes of their sources. A key that is set stays, and decides no store."""
    for name in ("train", "dev"):
        for language in ("source", "target"):
            lines = labelled.texts(40)
            if language == "target":
                lines = [f"{line} {line}" for line in lines]
            (tmp_path / f"{name}.{language}").write_text("\n".join(lines) + "\n")
    keys = {
        "tokenizer.kind": "bytes",
        "task.max_pieces": 400,
        "task.max_ratio": 0.0,
        "phases.main.length": 402,
        "model.max_length": 402,
    }
    config = load(tmp_path, **keys)
    examples.open_or_build(config)
    store, *_ = open_dataset(config)
    _, sizes = locate_texts(store.splits["train"])
    longest = int((sizes[:, 1] - sizes[:, 0]).max())
    assert longest > 60 and config.task.extra_pieces == longest * 3 // 2
    config = load(tmp_path, **keys, **{"task.extra_pieces": 7})
    examples.open_or_build(config)
    open_dataset(config)
    assert config.task.extra_pieces == 7


def test_only_keys_that_the_data_decides_are_filled(tmp_path):
    config = load(tmp_path)
    saved = {"extra_pieces": 7, "max_pieces": 8}
    with config.unlocked():
        config.task.max_pieces = 0
    tasks.take_filled(config, saved)
    assert (config.task.extra_pieces, config.task.max_pieces) == (7, 0)


def test_names_with_dots_are_names(tmp_path):
    """Of parallel files and of others; ends of tables are no part of a split's name."""
    dev = "a.dev,a.test,b.txt,c.jsonl,eng.testa,eng.testb,d.tsv.gz,e.CSV,f.zst"
    keys = {"task.train": "a.train", "task.dev": dev}
    names = ["train", "a.dev", "a.test", "b", "c", "eng.testa", "eng.testb", "d", "e", "f"]
    assert [*examples.sources(load(tmp_path, **keys))] == names
    with pytest.raises(BadInput, match="task.dev"):
        examples.sources(load(tmp_path, **{"task.dev": "a.tsv,b/a.txt"}))


def test_every_pair_is_once_in_an_epoch(directory):
    store, dataset, phase = open_dataset(load(directory))
    _, sizes = locate_texts(store.splits["train"])
    epochs = [all_rows(dataset, phase, epoch) for epoch in range(2)]
    for rows in epochs:
        is_used = rows[..., A_SIZE] > 0
        assert (is_used[..., SOURCE] == is_used[..., TARGET]).all()
        pairs = rows[is_used[..., SOURCE]]
        numbers = pairs[..., EXAMPLE]
        assert (numbers[:, SOURCE] == numbers[:, TARGET]).all()
        assert np.sort(numbers[:, SOURCE]).tolist() == [*range(len(sizes))]
        assert (pairs[..., A_SIZE] == sizes[numbers[:, SOURCE]]).all()
        batch = assemble(dataset, phase, rows)
        assert (batch["sequence_ids"].max(1) == is_used[..., SOURCE].sum(1)).all()
        for name, leaf in dataset.shapes(phase, len(rows)).items():
            if name not in ("rows", "row_weights"):
                assert (batch[name].shape, batch[name].dtype) == (leaf.shape, leaf.dtype)
    assert not np.array_equal(*(rows[0] for rows in epochs))


def test_a_row_has_whole_pairs_that_see_only_themselves(directory):
    store, dataset, phase = open_dataset(load(directory))
    special = store.manifest["special"]
    train = store.splits["train"]
    rows = all_rows(dataset, phase)
    batch = assemble(dataset, phase, rows)
    assert not batch["segments"].any()
    assert (batch["tokens"][batch["sequence_ids"] == 0] == special["pad"]).all()
    for row, pairs in enumerate(rows):
        pairs = pairs[pairs[:, SOURCE, A_SIZE] > 0]
        for number, (source, target) in enumerate(pairs, 1):
            for prefix, text, begin in (("", source, []), ("target_", target, [special["cls"]])):
                start, size, *_ = text
                ids = [*begin, *train.tokens[start : start + size].tolist(), special["sep"]]
                places = np.flatnonzero(batch[f"{prefix}sequence_ids"][row] == number)
                assert batch[f"{prefix}tokens"][row, places].tolist() == ids
                assert batch[f"{prefix}positions"][row, places].tolist() == [*range(len(ids))]
                assert (np.diff(places) == 1).all()
                if not prefix:
                    assert batch["cls_positions"][row, number - 1] == places[0]


def test_rows_follow_from_the_seed_and_evaluated_ones_do_not(directory):
    (store, one, phase), (_, same, _), (_, other, _) = (
        open_dataset(load(directory, seed=seed)) for seed in (1, 1, 2)
    )
    assert np.array_equal(all_rows(one, phase), all_rows(same, phase))
    assert not np.array_equal(all_rows(one, phase)[0], all_rows(other, phase)[0])
    dev = [all_rows(dataset, phase, split="dev") for dataset in (one, other)]
    assert np.array_equal(*dev)
    assert (dev[0][:, 0, :, EXAMPLE] == np.arange(40 + COPIES)[:, None]).all()
    assert not dev[0][:, 1:].any()


def test_evaluated_texts_are_cut_and_counted(directory):
    store, dataset, phase = open_dataset(load(directory, **{"phases.main.length": 42}))
    _, sizes = locate_texts(store.splits["dev"])
    room = 42 - np.array([1, 2])
    number = (sizes > room).any(axis=1).sum()
    assert number
    rows = all_rows(dataset, phase, split="dev")
    assert (rows[:, 0, :, A_SIZE] == np.minimum(sizes, room)).all()
    (warning,) = dataset.survey(phase).warnings
    assert f" {number} of {40 + COPIES} " in warning and "dev" in warning


def test_a_step_has_the_tokens_of_both_sides(directory):
    config = load(directory)
    assert tasks.tokens_per_step(config, configs.phases(config)[0]) == 8 * (60 + 60)


def test_any_start_and_any_hosts_have_the_same_batches(directory):
    _, dataset, phase = open_dataset(load(directory))
    steps = 3 * len(dataset.rows(phase, "train", 0)) // phase.batch

    def make(first, last, positions=None):
        return batches(dataset, phase, first, last, positions)

    check_starts_and_hosts(make, steps)


@pytest.mark.parametrize("limit", [85, 8])
def test_rows_are_full(limit):
    """With lengths like those of Multi30k: more than 95 % of the places of the longer side, if pairs are not few."""
    draw = np.random.default_rng(0)
    sources = draw.gamma(12, 1.2, 4000)
    sizes = np.stack([sources, sources * draw.normal(1.02, 0.15, 4000)], axis=1)
    sizes = np.clip(sizes.astype(int), 3, 50) + [1, 2]
    rows = packing.pack(sizes, np.array([256, 256, limit]), np.zeros(1, np.uint32))
    assert np.sort(rows[rows >= 0]).tolist() == [*range(4000)]
    places = np.where(rows[..., None] < 0, 0, sizes[rows]).sum(axis=1)
    assert places.max() <= 256 and rows.shape[1] == limit
    if limit == 85:
        assert places.mean(axis=0).max() / 256 > 0.97
    else:
        assert (rows >= 0).sum(axis=1).mean() > 7.9


@pytest.mark.parametrize(
    "key, value",
    [
        ("task.text", "source"),
        ("task.max_pieces", 0),
        ("task.max_ratio", -1.0),
        ("phases.main.length", 41),
        ("task.metrics", "rouge"),
        ("task.extra_pieces", -1),
        ("tokenizer.normalization", "nfd"),
        ("tokenizer.normalization", "identity"),  # with WordPiece
        ("task.heldout", -0.1),
        ("task.warmup", 2.0),
        ("task.epochs", -1.0),
        ("objective.beams", 0),
        ("objective.length_rule", "longest"),
    ],
)
def test_bad_keys_are_refused(tmp_path, key, value):
    with pytest.raises(BadInput, match=key):
        load(tmp_path, **{key: value})


def test_a_store_knows_its_normalization(directory):
    """Only if it is not that of stores from before the key existed."""
    keys = {"tokenizer.kind": "bpe", "tokenizer.lowercase": False}
    for value in ("identity", "nfkc"):
        made_from = examples.made_from(
            load(directory, **keys, **{"tokenizer.normalization": value})
        )
        assert made_from.get("tokenizer.normalization", "nfkc") == value
    assert "tokenizer.normalization" not in made_from


def test_a_run_that_cannot_be_scored_does_not_start(directory, tmp_path, monkeypatch):
    network = {"model.name": "transformer"}
    unknown = load(directory, **network, **{"task.tokenize": "14a"})
    with pytest.raises(BadInput, match="task.tokenize.*13a"):
        pretrain(unknown, tmp_path / "run")
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(BadInput, match="sacrebleu.*translate"):
        pretrain(load(directory, **network), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    command = ["pretrain", "--config", "translate", "--config.task.data=builtin:numbers"]
    keys = ["--config.task.text=de,en", f"--config.store={tmp_path}/none"]
    (tmp_path / "other").mkdir()
    (tmp_path / "other/file").touch()
    scored = "--config.task.metrics=()"
    for named, *others in (
        ("sacrebleu", "--workdir", tmp_path / "run"),
        ("other", "--workdir", tmp_path / "other", scored),
        ("mesh", "--workdir", tmp_path / "run", scored, "--config.mesh.tensor=3"),
    ):
        assert named in refused(*command, *keys, *others)
        assert [*tmp_path.iterdir()] == [tmp_path / "other"]
    tasks.check_scores(load(directory, **{"task.metrics": "()"}))


def test_a_store_needs_a_pair_to_train_on(tmp_path):
    for name, text in (("train", "one two"), ("dev", "one")):
        for language in ("source", "target"):
            (tmp_path / f"{name}.{language}").write_text(f"{text}\n" * 9)
    with pytest.raises(BadInput, match="task.max_pieces=1"):
        examples.open_or_build(load(tmp_path, **{"task.max_pieces": 1}))
    assert not (tmp_path / "store").exists()

"""TensorFlow Datasets as sources, with a data set built here: every text once, in order; clear errors."""

from collections import Counter

import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from kits.corpora import read_sources
from kits.damage import flip_bit

from bert_jax import config as configs
from bert_jax.data.preparation import corpus
from bert_jax.data.sources import files, tables
from bert_jax.errors import BadInput

TEXTS = [f"Text {number}. It is 第{number}个。\nA second line." for number in range(100)]


class TinyTexts(tfds.core.GeneratorBasedBuilder):
    """A hundred short texts, with a nested text and a number in each example."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        text = tfds.features.Text()
        label = tfds.features.ClassLabel(names=["no", "yes"])
        names = {"text": text, "number": tf.int64, "label": label, "meta": {"body": text}}
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(names))

    def _split_generators(self, manager):
        return {"train": self._generate_examples(), "test": self._generate_examples(5)}

    def _generate_examples(self, number=100):
        for key in range(number):
            meta, label = {"body": f"body {key}"}, key % 3 - 1  # -1: unknown
            yield key, {"text": TEXTS[key], "number": key, "label": label, "meta": meta}


def build(directory, shards: int = 3):
    """Builds the data set in a directory."""
    builder = TinyTexts(data_dir=directory)
    builder.download_and_prepare(download_config=tfds.download.DownloadConfig(num_shards=shards))
    return builder.info.splits["train"].filepaths


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tfds")
    assert len(build(directory)) == 3
    return directory


@pytest.fixture
def data_dir(built, monkeypatch):
    """Sets the data directory. The library reads $TFDS_DATA_DIR only when it is imported."""
    monkeypatch.setattr(tfds.core.constants, "DATA_DIR", str(built))
    return built


def open_source(name, *overrides):
    config = configs.load("demo", [f"corpus.source=tfds:{name}", *overrides])
    (source,) = corpus.open_sources(config)
    return corpus.materialize(source, None, map)


def test_every_text_is_read_once_in_the_order_of_the_files(data_dir, monkeypatch):
    source = open_source("tiny_texts")
    whole = found, problems = read_sources([source])
    assert not problems and sorted(found) == sorted(
        [f"Text {n}.", f"It is 第{n}个。", "A second line."] for n in range(100)
    )
    paths = tfds.builder("tiny_texts", data_dir=data_dir).info.splits["train"].filepaths
    stored = b"".join(path.read_bytes() for path in paths)
    places = [stored.index(f"{document[0]} ".encode()) for document in found]
    assert places == sorted(places)
    monkeypatch.setattr(files, "PIECE", 100)
    assert read_sources([source]) == whole and len(list(source.blocks(Counter()))) > 20


def test_a_table_has_the_names_of_its_labels(data_dir):
    """Its rows are in the order of the files, like texts."""
    rows = tables.read("tfds:tiny_texts[test]", ["text", "label"], optional="label")
    labels = {text: ["no", "yes", None][key % 3 - 1] for key, text in enumerate(TEXTS)}
    assert [row for _, row in rows] == [[text, labels[text]] for _, (text, _) in rows]
    assert {text for _, (text, _) in rows} == {*TEXTS[:5]}


def test_versions_splits_and_nested_fields_are_selected(data_dir):
    source = open_source("tiny_texts:1.0.0[test]", "corpus.field=meta.body")
    found, _ = read_sources([source])
    assert sorted(found) == [[f"body {number}"] for number in range(5)]
    known = {"name": "tiny_texts/1.0.0", "version": "1.0.0", "split": "test", "examples": 5}
    assert source.data_set == known
    assert open_source("tiny_texts[train[:10%]]").data_set["examples"] == 10


@pytest.mark.parametrize("name", ["no_such_set", "tiny_texts:9.9.9", "", "tiny_texts[dev]"])
def test_missing_data_sets_are_named(data_dir, name):
    with pytest.raises(BadInput, match=f"tfds:{name.removesuffix('[dev]')}"):
        open_source(name)


@pytest.mark.parametrize("field", ["body", "text.body", "number", "meta"])
def test_fields_without_a_text_are_named(data_dir, field):
    with pytest.raises(BadInput, match=f"field '{field}'"):
        open_source("tiny_texts", f"corpus.field={field}")


def test_a_data_set_that_is_not_prepared_is_built_by_materialize(tmp_path, monkeypatch):
    def fail(self, manager):
        raise OSError("no network\nwith details")

    monkeypatch.setattr(tfds.core.constants, "DATA_DIR", str(tmp_path))
    with monkeypatch.context() as patch, pytest.raises(OSError, match="tiny_texts.*no network"):
        patch.setattr(TinyTexts, "_split_generators", fail)
        open_source("tiny_texts[train[5:]]")
    ready = open_source("tiny_texts[train[5:]]")
    assert ready.data_set["examples"] == 95 and len(read_sources([ready])[0]) == 95
    assert open_source("tiny_texts[train[5:]]") == ready


def test_damaged_files_raise_oserror(tmp_path, monkeypatch):
    """Not BadInput, which would delete the finished shards."""
    monkeypatch.setattr(tfds.core.constants, "DATA_DIR", str(tmp_path))
    (path,) = build(tmp_path, shards=1)
    source = open_source("tiny_texts")
    flip_bit(path, path.stat().length // 2)
    with pytest.raises(OSError, match="tfds:tiny_texts"):
        read_sources([source])

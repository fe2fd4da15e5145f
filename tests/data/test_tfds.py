"""Data sets of TensorFlow Datasets, built here: every text once, in order; what is not there is named."""

import logging
from collections import Counter

import absl.logging
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from kits.corpora import read_sources

from bert_jax import config as configs
from bert_jax.data import corpus
from bert_jax.data.sources import files
from bert_jax.data.sources import tfds as sources
from bert_jax.errors import BadInput

TEXTS = [f"Text {number}. It is 第{number}个。\nA second line." for number in range(100)]


class TinyTexts(tfds.core.GeneratorBasedBuilder):
    """A hundred short texts, at two places of an example, with a number beside them."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        names = {
            "text": tfds.features.Text(),
            "number": tf.int64,
            "list": tfds.features.Sequence(tf.string),
        }
        features = tfds.features.FeaturesDict(names | {"meta": {"body": tfds.features.Text()}})
        return tfds.core.DatasetInfo(builder=self, features=features)

    def _split_generators(self, manager):
        return {"train": self._generate_examples(), "test": self._generate_examples(5)}

    def _generate_examples(self, number=100):
        for key in range(number):
            other = {"number": key, "list": ["a"], "meta": {"body": f"body {key}"}}
            yield key, {"text": TEXTS[key], **other}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """Where the data set lies, in three shards."""
    directory = tmp_path_factory.mktemp("tfds")
    builder = TinyTexts(data_dir=directory)
    builder.download_and_prepare(download_config=tfds.download.DownloadConfig(num_shards=3))
    assert builder.info.splits["train"].num_shards == 3
    return directory


def open_source(data_dir, name, *overrides):
    keys = [f"corpus.source=tfds:{name}", f"corpus.data_dir={data_dir}", *overrides]
    (source,) = corpus.open_sources(configs.load("demo", keys))
    return source


def read(source):
    return read_sources([source])


def test_every_text_once_and_in_the_order_of_the_files(data_dir):
    source = open_source(data_dir, "tiny_texts")
    found, problems = read(source)
    assert sorted(found) == sorted(
        [f"Text {n}.", f"It is 第{n}个。", "A second line."] for n in range(100)
    )
    assert not problems and read(source) == (found, problems)
    builder = tfds.builder("tiny_texts", data_dir=data_dir)
    records = tf.data.TFRecordDataset(
        [str(path) for path in builder.info.splits["train"].filepaths]
    )
    stored = [
        tf.train.Example.FromString(record.numpy()).features.feature["text"] for record in records
    ]
    order = [feature.bytes_list.value[0].decode().split("\n")[0] for feature in stored]
    assert [document[0] + " " + document[1] for document in found] == order


def test_blocks_do_not_change_documents(data_dir, monkeypatch):
    source = open_source(data_dir, "tiny_texts")
    whole = read(source)
    monkeypatch.setattr(corpus, "BLOCK", 100)
    assert read(source) == whole and len(list(source.blocks(Counter()))) > 20


def test_versions_splits_and_nested_fields(data_dir):
    source = open_source(data_dir, "tiny_texts:1.0.0[test]", "corpus.field=meta.body")
    found, _ = read(source)
    assert sorted(found) == [[f"body {number}"] for number in range(5)]
    assert source.files_read == {
        "name": "tiny_texts/1.0.0",
        "version": "1.0.0",
        "split": "test",
        "examples": 5,
    }
    tenth = open_source(data_dir, "tiny_texts[train[:10%]]")
    assert tenth.files_read["examples"] == 10
    assert read(tenth)[0] == read(open_source(data_dir, "tiny_texts"))[0][:10]
    assert corpus.materialize(tenth, data_dir, map) == tenth


@pytest.mark.parametrize(
    "name, override, message",
    [
        ("no_such_set", "seed=1", "tfds:no_such_set: Dataset no_such_set not found"),
        ("tiny_texts:9.9.9", "seed=1", "tfds:tiny_texts:9.9.9: .*version 9.9.9"),
        ("tiny_texts/other", "seed=1", "tfds:tiny_texts/other: .*other"),
        ("tiny_texts[dev]", "seed=1", "Unknown split 'dev'"),
        ("tiny_texts[train", "seed=1", "expected tfds:NAME or"),
        ("", "seed=1", "expected tfds:NAME or"),
        ("tiny_texts", "corpus.field=body", "field='body': .* list, meta, number, text"),
        ("tiny_texts", "corpus.field=text.body", "field='text.body': .* no such field"),
        ("tiny_texts", "corpus.field=number", "field='number': no text"),
        ("tiny_texts", "corpus.field=list", "field='list': "),
        ("tiny_texts", "corpus.field=meta", "field='meta': no text"),
    ],
)
def test_what_is_not_there(data_dir, name, override, message):
    with pytest.raises(BadInput, match=message) as error:
        open_source(data_dir, name, override)
    assert "\n" not in str(error.value)


def test_a_data_set_that_is_not_prepared(tmp_path):
    """It is known by its name alone until it is built, which `materialize` does."""
    source = open_source(tmp_path, "tiny_texts[train[5:]]")
    assert source.files_read == {} and not any(tmp_path.iterdir())
    ready = corpus.materialize(source, tmp_path, map)
    assert ready.files_read["examples"] == 95 and len(read(ready)[0]) == 95
    assert open_source(tmp_path, "tiny_texts[train[5:]]") == ready


def test_a_data_set_that_cannot_be_had(tmp_path, monkeypatch):
    def fail(self, manager):
        raise OSError("no network\nand a long story")

    source = open_source(tmp_path, "tiny_texts")
    monkeypatch.setattr(TinyTexts, "_split_generators", fail)
    with pytest.raises(BadInput, match="tfds:tiny_texts: no network$"):
        corpus.materialize(source, tmp_path, map)


def test_damage_is_named(tmp_path):
    builder = TinyTexts(data_dir=tmp_path)
    builder.download_and_prepare()
    (path,) = builder.info.splits["train"].filepaths
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(BadInput, match="tfds:tiny_texts: .*corrupted record"):
        read(open_source(tmp_path, "tiny_texts"))


def test_what_may_be_the_machine_s_fault_is_no_bad_input(tmp_path):
    """A file that has gone since the data set was opened: what is done already is to stay."""
    builder = TinyTexts(data_dir=tmp_path)
    builder.download_and_prepare()
    source = open_source(tmp_path, "tiny_texts")
    builder.info.splits["train"].filepaths[0].unlink()
    with pytest.raises(OSError, match="tfds:tiny_texts: "):
        read(source)


def test_the_library_is_quiet(data_dir, caplog):
    read(open_source(data_dir, "tiny_texts"))
    with sources.quiet():
        logging.getLogger("urllib3").warning("retrying")
        absl.logging.warning("deprecated")
    assert not caplog.records
    logging.getLogger("urllib3").warning("of others")
    assert len(caplog.records) == 1


def test_huge_texts_are_parted(data_dir, monkeypatch):
    monkeypatch.setattr(files, "LONGEST_DOCUMENT", 20)
    found, problems = read(open_source(data_dir, "tiny_texts"))
    assert problems["documents parted"] == len(found) - 100 >= 100
    words = sorted(" ".join(sentence for sentence in document) for document in found)
    assert "".join("".join(words).split()).count("Asecondline.") == 100


def test_wikipedia_is_a_name_that_the_library_knows(tmp_path):
    dataset = sources.open_dataset("tfds:wikipedia/20230601.en", "text", str(tmp_path))
    assert dataset == ("wikipedia/20230601.en", "train", "text", str(tmp_path))

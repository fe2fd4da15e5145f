"""TensorFlow Datasets as sources: `tfds:NAME`, `tfds:NAME/CONFIG:VERSION`, `tfds:NAME[SPLIT]`."""

import contextlib
import os
import re
import warnings
from collections.abc import Iterator
from typing import NamedTuple

from bert_jax.errors import BadInput, one_line
from bert_jax.storage.remote import is_address

PREFIX = "tfds:"
BATCH = 64  # examples that leave TensorFlow together: one by one is three times the work
SOURCE = re.compile(r"tfds:([^\[\]\s]+)(?:\[(.+)\])?")


class Dataset(NamedTuple):
    """What of which data set is read."""

    name: str  # as tfds.builder takes it
    split: str
    field: str  # nested by dots
    data_dir: str  # '' is the library's default


@contextlib.contextmanager
def library(dataset: Dataset) -> Iterator:
    """TensorFlow Datasets, without its warnings; whatever it raises within, of many kinds, is BadInput.

    Imported late: with TensorFlow it takes seconds, which other sources need not wait for.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import tensorflow_datasets

            yield tensorflow_datasets
    except BadInput:
        raise
    except Exception as error:
        raise BadInput(describe(dataset, error)) from None


def describe(dataset: Dataset, error: Exception) -> str:
    return f"config.corpus.source: {PREFIX}{dataset.name}: {one_line(error, 300)}"


def builder_of(tfds, dataset: Dataset):
    place = {"data_dir": dataset.data_dir} if dataset.data_dir else {}
    return tfds.builder(dataset.name, **place)


def open_dataset(source: str, field: str, data_dir: str) -> Dataset:
    """The data set that a part of `config.corpus.source` names; BadInput for names and fields it has not."""
    match = SOURCE.fullmatch(source)
    if not match:
        raise BadInput(f"config.corpus.source: {source}: expected tfds:NAME or tfds:NAME[SPLIT]")
    if data_dir and not is_address(data_dir):
        data_dir = os.path.abspath(os.path.expanduser(data_dir))
    dataset = Dataset(match[1], match[2] or "train", field, data_dir)
    with library(dataset) as tfds:
        features = feature = builder_of(tfds, dataset).info.features
        for name in field.split("."):
            feature = feature[name] if hasattr(feature, "keys") and name in feature else None
        if hasattr(feature, "keys") or getattr(feature, "tf_dtype", None) != "string":
            kinds = " ".join(str(features).split())
            raise BadInput(
                f"config.corpus.field={field!r}: no text in {PREFIX}{dataset.name}: {kinds}"
            )
    return dataset


def what_is_read(dataset: Dataset, prepare: bool = False) -> dict:
    """Identifies a data set by its full name, version, split and number of examples, reading none; {} where it is not
    there yet, unless this is to download and build it. Raises BadInput."""
    with library(dataset) as tfds:
        builder = builder_of(tfds, dataset)
        if prepare and not builder.is_prepared():
            builder.download_and_prepare()
        if not builder.is_prepared():
            return {}
        return {
            "name": builder.info.full_name,
            "version": str(builder.version),
            "split": dataset.split,
            "examples": builder.info.splits[dataset.split].num_examples,
        }


def texts(dataset: Dataset) -> Iterator[bytes]:
    """The texts under the field in the order of the files. Raises OSError."""
    names = dataset.field.split(".")
    wanted = True
    for name in reversed(names):
        wanted = {name: wanted}
    with library(dataset) as tfds:
        read = builder_of(tfds, dataset).as_dataset(
            split=dataset.split,
            shuffle_files=False,
            decoders=tfds.decode.PartialDecoding(wanted),  # nothing but the field is parsed
            read_config=tfds.ReadConfig(interleave_cycle_length=1, try_autocache=False),
        )
    try:
        for batch in read.batch(BATCH).as_numpy_iterator():
            for name in names:
                batch = batch[name]
            yield from batch
    except Exception as error:  # damage, or the machine, whose work is to stay
        raise OSError(describe(dataset, error)) from None

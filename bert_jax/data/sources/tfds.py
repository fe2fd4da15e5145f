"""TensorFlow Datasets as sources: `tfds:NAME`, `tfds:NAME/CONFIG:VERSION`, `tfds:NAME[SPLIT]`.

They are kept where the library keeps them: in $TFDS_DATA_DIR.
"""

import contextlib
import functools
import operator
import re
import warnings
from collections.abc import Iterator
from typing import NamedTuple

from bert_jax.errors import BadInput, one_line

PREFIX = "tfds:"
BATCH = 64  # examples that leave TensorFlow together: one by one is three times the work
SOURCE = re.compile(r"tfds:([^\[\]\s]+)(?:\[(.+)\])?")


class Dataset(NamedTuple):
    """What of which data set is read."""

    name: str  # as tfds.builder takes it
    split: str
    field: str  # nested by dots


@contextlib.contextmanager
def builder_of(dataset: Dataset) -> Iterator:
    """The library's builder, without warnings; whatever is raised within, of many kinds, is BadInput.

    The library is imported late: with TensorFlow it takes seconds, which other sources need not wait for.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import tensorflow_datasets

            yield tensorflow_datasets.builder(dataset.name)
    except Exception as error:
        raise BadInput(describe(dataset, error)) from None


def describe(dataset: Dataset, error: Exception) -> str:
    reason = f"{type(error).__name__} {one_line(error, 300)}"
    return f"config.corpus.source: {PREFIX}{dataset.name}, field={dataset.field!r}: {reason}"


def open_dataset(source: str, field: str) -> Dataset:
    """The data set that a part of `config.corpus.source` names; BadInput for names and fields it has not."""
    match = SOURCE.fullmatch(source)
    if not match:
        raise BadInput(f"config.corpus.source: {source}: expected tfds:NAME or tfds:NAME[SPLIT]")
    dataset = Dataset(match[1], match[2] or "train", field)
    with builder_of(dataset) as builder:
        feature = field_of(builder.info.features, dataset)
        if getattr(feature, "tf_dtype", None) != "string":
            raise TypeError(f"no text, but {feature}")
    return dataset


def field_of(values, dataset: Dataset):
    return functools.reduce(operator.getitem, dataset.field.split("."), values)


def what_is_read(dataset: Dataset, prepare: bool = False) -> dict:
    """Identifies a data set by its full name, version, split and number of examples, reading none; {} where it is not
    there yet, unless this is to download and build it. Raises BadInput."""
    with builder_of(dataset) as builder:
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
    with builder_of(dataset) as builder:
        import tensorflow_datasets

        in_order = tensorflow_datasets.ReadConfig(interleave_cycle_length=1, try_autocache=False)
        examples = builder.as_dataset(split=dataset.split, read_config=in_order)
        read = examples.map(lambda example: field_of(example, dataset)).batch(BATCH)
    try:
        for batch in read.as_numpy_iterator():
            yield from batch
    except Exception as error:  # damage, or the machine, whose work is to stay
        raise OSError(describe(dataset, error)) from None

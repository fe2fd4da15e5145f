"""TensorFlow Datasets as sources: `tfds:NAME`, `tfds:NAME/CONFIG:VERSION`, `tfds:NAME[SPLIT]`.

The library stores them in $TFDS_DATA_DIR. Dots in a field name address nested features, as in `meta.body`.
"""

import contextlib
import functools
import warnings
from collections.abc import Iterator

from bert_jax.data.sources.fields import explain, name_labels, value_of

PREFIX = "tfds:"
BATCH = 64  # examples read from TensorFlow at a time; one by one takes three times as long
SOURCE = r"tfds:([^\[\]\s]+)"


@contextlib.contextmanager
def open_builder(source: str, field: str, is_reading: bool = False) -> Iterator[tuple]:
    """Yields the builder of a data set, the name of the split, and a function () -> its examples in the order of the
    files. Errors are those of fields.explain.

    Imports the library late: with TensorFlow, that takes seconds.
    """
    explained = explain(SOURCE, source, field, is_reading)
    with explained as (name, split), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import tensorflow_datasets

        builder = tensorflow_datasets.builder(name)
        in_order = tensorflow_datasets.ReadConfig(interleave_cycle_length=1, try_autocache=False)
        yield builder, split, functools.partial(builder.as_dataset, split, read_config=in_order)


def identify(source: str, field: str) -> dict:
    """Downloads and builds a data set, and identifies it by its full name, version, split and number of examples.

    Raises BadInput if there is no such data set or the field is not text, and OSError if the disk or network fails.
    """
    with open_builder(source, field) as (builder, split, _):
        feature = value_of(builder.info.features, field)
        if getattr(feature, "tf_dtype", None) != "string":
            raise TypeError(f"not text, but {feature}")
        builder.download_and_prepare()
        return {
            "name": builder.info.full_name,
            "version": str(builder.version),
            "split": split,
            "examples": builder.info.splits[split].num_examples,
        }


def texts(source: str, field: str) -> Iterator[bytes]:
    """Yields the text of each example in the order of the files. Raises OSError if reading fails."""
    with open_builder(source, field, is_reading=True) as (_, _, examples):
        data = examples().map(lambda example: value_of(example, field))
        for batch in data.batch(BATCH).as_numpy_iterator():
            yield from batch


def table(source: str, columns: list[str]) -> dict[str, list]:
    """Returns the values of those of the columns that a data set has, like hf.table."""
    with open_builder(source, ", ".join(columns)) as (builder, _, examples):
        builder.download_and_prepare()
        features = builder.info.features
        rows = list(examples().as_numpy_iterator())
        return {
            column: name_labels(features[column], [row[column] for row in rows])
            for column in columns
            if column in features
        }

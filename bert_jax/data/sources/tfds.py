"""TensorFlow Datasets as sources: `tfds:NAME`, `tfds:NAME/CONFIG:VERSION`, `tfds:NAME[SPLIT]`.

The library stores them in $TFDS_DATA_DIR. Dots in a field name address nested features, as in `meta.body`.
"""

import contextlib
import re
import warnings
from collections.abc import Iterator

from bert_jax.data.sources.fields import explain, get_field, named
from bert_jax.errors import BadInput

PREFIX = "tfds:"
BATCH = 64  # examples read from TensorFlow at a time; one by one takes three times as long
SOURCE = re.compile(r"tfds:([^\[\]\s]+)(?:\[(.+)\])?")


@contextlib.contextmanager
def open_builder(source: str, field: str, is_reading: bool = False) -> Iterator[tuple]:
    """Yields the library, the builder of the data set, and the name of the split. Errors are those of fields.explain.

    Imports the library late: with TensorFlow, that takes seconds.
    """
    match = SOURCE.fullmatch(source)
    if not match:
        raise BadInput(f"config.corpus.source: {source}: expected tfds:NAME or tfds:NAME[SPLIT]")
    with explain(source, field, is_reading), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import tensorflow_datasets

        builder = tensorflow_datasets.builder(match[1])
        yield tensorflow_datasets, builder, match[2] or "train"


def identify(source: str, field: str, prepare: bool = False) -> dict:
    """Identifies a data set by its full name, version, split and number of examples, without reading them.

    Returns {} if it is not downloaded yet; with `prepare`, downloads and builds it first. Raises BadInput if there is
    no such data set or the field is not text, and OSError if the disk or network fails.
    """
    with open_builder(source, field) as (_, builder, split):
        feature = get_field(builder.info.features, field)
        if getattr(feature, "tf_dtype", None) != "string":
            raise TypeError(f"not text, but {feature}")
        if prepare and not builder.is_prepared():
            builder.download_and_prepare()
        if not builder.is_prepared():
            return {}
        return {
            "name": builder.info.full_name,
            "version": str(builder.version),
            "split": split,
            "examples": builder.info.splits[split].num_examples,
        }


def texts(source: str, field: str) -> Iterator[bytes]:
    """Yields the text of each example in the order of the files. Raises OSError if reading fails."""
    with open_builder(source, field, is_reading=True) as (library, builder, split):
        in_order = library.ReadConfig(interleave_cycle_length=1, try_autocache=False)
        examples = builder.as_dataset(split=split, read_config=in_order)
        read = examples.map(lambda example: get_field(example, field)).batch(BATCH)
        for batch in read.as_numpy_iterator():
            yield from batch


def table(source: str, columns: list[str]) -> dict[str, list]:
    """Returns the values of those of the columns that a data set has, like hf.table."""
    with open_builder(source, ", ".join(columns)) as (library, builder, split):
        builder.download_and_prepare()
        features = {
            name: builder.info.features[name] for name in columns if name in builder.info.features
        }
        in_order = library.ReadConfig(interleave_cycle_length=1, try_autocache=False)
        rows = [*builder.as_dataset(split=split, read_config=in_order).as_numpy_iterator()]
        found = {name: [row[name] for row in rows] for name in features}
        return {name: named(features[name], values) for name, values in found.items()}

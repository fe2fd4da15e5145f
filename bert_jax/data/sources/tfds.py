"""TensorFlow Datasets as sources: `tfds:NAME`, `tfds:NAME/CONFIG:VERSION`, `tfds:NAME[SPLIT]`.

They are kept where the library keeps them: in $TFDS_DATA_DIR. A field of an example is named with dots where it is
nested.
"""

import contextlib
import functools
import operator
import re
import warnings
from collections.abc import Iterator

from bert_jax.errors import BadInput, one_line

PREFIX = "tfds:"
BATCH = 64  # examples that leave TensorFlow together: one by one is three times the work
SOURCE = re.compile(r"tfds:([^\[\]\s]+)(?:\[(.+)\])?")


@contextlib.contextmanager
def opened(source: str, field: str) -> Iterator[tuple]:
    """The library, its builder, and the name of the split; what is raised within, of many kinds, is BadInput, but
    OSError, of the disk or the network, stays one.

    The library is imported late: with TensorFlow it takes seconds, which other sources need not wait for.
    """
    match = SOURCE.fullmatch(source)
    if not match:
        raise BadInput(f"config.corpus.source: {source}: expected tfds:NAME or tfds:NAME[SPLIT]")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import tensorflow_datasets

            builder = tensorflow_datasets.builder(match[1])
            yield tensorflow_datasets, builder, match[2] or "train"
    except Exception as error:
        kind = OSError if isinstance(error, OSError) else BadInput
        raise kind(describe(source, field, error)) from None


def describe(source: str, field: str, error: Exception) -> str:
    reason = f"{type(error).__name__} {one_line(error, 300)}"
    return f"config.corpus.source: {source}, config.corpus.field={field!r}: {reason}"


def field_of(example, field: str):
    return functools.reduce(operator.getitem, field.split("."), example)


def what_is_read(source: str, field: str, prepare: bool = False) -> dict:
    """Identifies a data set by its full name, version, split and number of examples, reading none; {} where it is not
    there yet, unless this is to download and build it. Raises BadInput, also where the field holds no text; OSError."""
    with opened(source, field) as (_, builder, split):
        feature = field_of(builder.info.features, field)
        if getattr(feature, "tf_dtype", None) != "string":
            raise TypeError(f"no text, but {feature}")
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
    """The texts under the field in the order of the files. Raises OSError."""
    with opened(source, field) as (library, builder, split):
        in_order = library.ReadConfig(interleave_cycle_length=1, try_autocache=False)
        examples = builder.as_dataset(split=split, read_config=in_order)
        read = examples.map(lambda example: field_of(example, field)).batch(BATCH)
    try:
        for batch in read.as_numpy_iterator():
            yield from batch
    except Exception as error:  # damage, or the machine, whose work is to stay
        raise OSError(describe(source, field, error)) from None

"""TensorFlow Datasets as sources: `tfds:NAME`, `tfds:NAME/CONFIG:VERSION`, `tfds:NAME[SPLIT]`."""

import contextlib
import logging
import os
import re
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import absl.logging  # noqa: F401  it makes its own kind of logger, and has to come before `quiet` asks for it

from bert_jax.data.sources.text import parts
from bert_jax.errors import BadInput
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


def open_dataset(source: str, field: str, data_dir: str) -> Dataset:
    """The data set that a part of `config.corpus.source` names; BadInput for names, splits and fields it has not."""
    match = SOURCE.fullmatch(source)
    if not match:
        raise BadInput(f"config.corpus.source: {source}: expected tfds:NAME or tfds:NAME[SPLIT]")
    if data_dir and not is_address(data_dir):  # workers may be in other directories, of other users
        data_dir = os.path.abspath(os.path.expanduser(data_dir))
    dataset = Dataset(match[1], match[2] or "train", field, data_dir)
    builder = open_builder(dataset)
    check_field(dataset, builder)
    if builder.is_prepared():
        examples(dataset, builder)
    return dataset


def open_builder(dataset: Dataset):
    library = load_library()
    place = {"data_dir": dataset.data_dir} if dataset.data_dir else {}
    try:
        with quiet():
            return library.builder(dataset.name, **place)
    except Exception as error:  # the library raises many kinds, AssertionError among them
        raise refusal(dataset, error) from None


def load_library():
    """The library is imported late: with TensorFlow it takes seconds, which other sources need not wait for."""
    with quiet():
        import tensorflow_datasets

    return tensorflow_datasets


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """The library's own warnings are nothing that its users could act on; nor is each try to reach a server."""
    loggers = [logging.getLogger(name) for name in ("absl", "urllib3")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)


def refusal(dataset: Dataset, error: Exception) -> BadInput:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return BadInput(f"config.corpus.source: {PREFIX}{dataset.name}: {lines[0][:300]}")


def check_field(dataset: Dataset, builder) -> None:
    """That the features have a single string under the field."""
    feature = builder.info.features
    for name in dataset.field.split("."):
        if not hasattr(feature, "keys") or name not in feature:
            names = ", ".join(sorted(builder.info.features))
            raise BadInput(
                f"config.corpus.field={dataset.field!r}: {PREFIX}{dataset.name} has no such field; it has {names}"
            )
        feature = feature[name]
    if hasattr(feature, "keys") or (feature.shape, feature.tf_dtype) != ((), "string"):
        kind = " ".join(str(feature).split())
        raise BadInput(
            f"config.corpus.field={dataset.field!r}: no text in {PREFIX}{dataset.name}: {kind}"
        )


def examples(dataset: Dataset, builder) -> int:
    """The examples of the split; BadInput if there is no such split."""
    try:
        return builder.info.splits[dataset.split].num_examples
    except Exception as error:
        raise refusal(dataset, error) from None


def is_prepared(dataset: Dataset) -> bool:
    return open_builder(dataset).is_prepared()


def prepare(dataset: Dataset) -> None:
    """Downloads and builds the data set if it is not there; whatever goes wrong is BadInput."""
    builder = open_builder(dataset)
    if builder.is_prepared():
        return
    try:
        with quiet():
            builder.download_and_prepare()
    except Exception as error:  # no network, no space, a package that this data set needs
        raise refusal(dataset, error) from None


def what_is_read(dataset: Dataset) -> dict:
    """What is cheap to know about a prepared data set: its full name, version, split and number of examples."""
    builder = open_builder(dataset)
    return {
        "name": builder.info.full_name,
        "version": str(builder.version),
        "split": dataset.split,
        "examples": examples(dataset, builder),
    }


def texts(dataset: Dataset, longest: int, problems: Counter) -> Iterator[bytes]:
    """The texts under the field in the order of the files; those over `longest` bytes in parts.

    Raises BadInput for damaged files, OSError for all else that goes wrong.
    """
    library = load_library()
    names = dataset.field.split(".")
    wanted = True
    for name in reversed(names):
        wanted = {name: wanted}
    builder = open_builder(dataset)
    try:
        with quiet():
            read = builder.as_dataset(
                split=dataset.split,
                shuffle_files=False,
                decoders=library.decode.PartialDecoding(wanted),  # nothing but the field is parsed
                read_config=library.ReadConfig(interleave_cycle_length=1, try_autocache=False),
            )
        for batch in read.batch(BATCH).as_numpy_iterator():
            for name in names:
                batch = batch[name]
            for example in batch:
                yield from parts(example, longest, problems)
    except BadInput:
        raise
    except Exception as error:
        raise reading_failed(dataset, error) from None


def reading_failed(dataset: Dataset, error: Exception) -> BadInput | OSError:
    """BadInput for damaged files; all else can be the machine's fault, and what is done already is to stay."""
    from tensorflow import errors

    refused = refusal(dataset, error)
    damaged = isinstance(error, errors.DataLossError | errors.InvalidArgumentError)
    return refused if damaged else OSError(str(refused))

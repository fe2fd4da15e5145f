"""Data sets of the Hugging Face hub as sources: `hf:NAME`, `hf:NAME:CONFIG`, `hf:NAME[SPLIT]`, `hf:NAME:CONFIG[SPLIT]`.

NAME may be a local directory. The library `datasets` stores them in $HF_HOME, and executes no code of a data set. Dots
in a field name address nested features, as in `meta.body`.
"""

import contextlib
from collections.abc import Iterator

from bert_jax.data.sources.fields import NESTED, explain, name_labels, texts_of, value_of
from bert_jax.errors import BadInput

PREFIX = "hf:"
ROWS = 256  # read at a time
SOURCE = r"hf:([^:\[\]\s]+)(?::([^:\[\]\s]+))?"


@contextlib.contextmanager
def open_data(source: str, field: str, is_reading: bool = False) -> Iterator[tuple]:
    """Yields a data set, and its name, configuration and split. Errors are those of fields.explain."""
    try:
        import datasets
    except ModuleNotFoundError:
        raise BadInput(
            f"config.corpus.source: {source}: pip install -c constraints.txt -e '.[hf]'"
        ) from None
    datasets.disable_progress_bars()
    with explain(SOURCE, source, field, is_reading) as (name, config, split):
        yield datasets.load_dataset(name, config, split=split), name, config, split


def identify(source: str, field: str) -> dict:
    """Downloads a data set, and identifies it by its name, configuration, split and number of examples.

    Raises BadInput if there is no such data set or the field is not text, and OSError if the disk or network fails.
    """
    with open_data(source, field) as (data, name, config, split):
        feature = value_of(data.features, field)
        if getattr(feature, "dtype", None) not in ("string", "large_string"):
            raise TypeError(f"not text, but {feature}")
        return {
            "name": name,
            "config": config,
            "split": split,
            "examples": len(data),
        }


def texts(source: str, field: str) -> Iterator[bytes]:
    """Yields the text of each example, in order; b'' for a null. Raises OSError if reading fails."""
    with open_data(source, field, is_reading=True) as (data, *_):
        for rows in data.with_format("arrow").iter(ROWS):
            yield from texts_of(rows, field)


def table(source: str, columns: list[str]) -> dict[str, list]:
    """Returns the values of those of the columns, and of NESTED, that a data set has, by name; a class label as its
    name, and None if it is unknown."""
    with open_data(source, ", ".join(columns)) as (data, *_):
        return {
            column: name_labels(data.features[column], data[column])
            for column in (*columns, NESTED)
            if column in data.features
        }

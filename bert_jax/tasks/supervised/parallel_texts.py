"""Examples without labels: texts side by side, such as sentences in two languages.

The file of a task of them takes DEFAULTS, `load`, `parse` and `encode` from here, and has

    check(config)               composes texts.check
    make(config, store=None)    -> Dataset of rows with all texts (texts.pairs) or with each alone (texts.single_texts)
    EXAMPLES                    Examples(load=load, ...), with `decode` if its objective labels, answers or translates

as in tests/kits/translation_pairs.py. Its objective is any that reads the arrays of its batches.
"""

from pathlib import Path

from bert_jax.data.sources import tables
from bert_jax.tasks.supervised import examples, texts
from bert_jax.tasks.supervised.examples import Encoded, Example

DEFAULTS = {
    **examples.UNLABELLED,
    "text": ("source", "target"),  # columns of the texts, or ends of the names of parallel files
}


def load(config, path: Path | str) -> list[Example]:
    """Reads the examples of a file, of parallel files, or of a data set; see tables.py."""
    rows = tables.read(path, [*config.task.text])
    return [
        Example(location, [text for text in row if text is not None], None)
        for location, row in rows
    ]


def parse(config, lines: list[str]) -> list[Example]:
    """Returns examples, each of as many of the texts as there are columns."""
    return texts.parse(lines, len(config.task.text))


def encode(config, tokenizer, chosen: list[Example], names: list[str]) -> Encoded:
    """Converts examples to ids. names: []."""
    return Encoded(examples.encode_texts(tokenizer, [example.texts for example in chosen]), {})

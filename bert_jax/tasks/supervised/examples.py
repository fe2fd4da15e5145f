"""Examples, with labels or without: their store is a token store (data/store.py) with the splits and arrays of a task.

A document of the store is an example, and its sentences are the example's texts.
"""

import json
import re
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bert_jax import prng
from bert_jax.checks import require
from bert_jax.data import dataset, download, origin, vocabulary
from bert_jax.data import store as stores
from bert_jax.data.sources import files, tables
from bert_jax.data.sources.text import has_visible
from bert_jax.errors import BadInput, Unfinished, log
from bert_jax.registry import Interface, part_of
from bert_jax.storage import atomic, remote
from bert_jax.tokenizers.special_tokens import check_task

UNLABELLED = {
    "data": "",  # directory of the files, or data set: tfds:NAME, hf:NAME or builtin:numbers
    "train": "train.tsv",  # file of the examples to train on, or split of the data set
    "dev": ("dev.tsv",),  # evaluated files or splits; (): a share of `train`, see `heldout`
    "heldout": 0.1,  # share of the examples in `train` that is evaluated if `dev` is empty
    "epochs": 3.0,  # passes over the examples, which decide the last phase's steps; 0: its steps
    # share of the steps of `epochs` with a rising learning rate; without an override at most schedule.warmup
    "warmup": 0.1,
}
DEFAULTS = {
    **UNLABELLED,
    "labels": (),  # names of the labels, in their order; (): those in `train`, all of it, sorted
}
# Ends of names of files, not of splits such as iwslt.dev.
ENDS = rf"(?i)(\.(tsv|csv|jsonl?|parquet|txt|conll|bio|iob2?))?{files.COMPRESSION}"
CHUNK = 4096  # examples encoded at a time: the library takes 100 bytes and more for a token
FREE = ("labels", "epochs", "warmup", "metrics")  # keys that do not decide the content of a store


class Example(NamedTuple):
    """An example as its file has it."""

    location: str  # its file and line, for messages, or its identifier
    texts: list[str]  # []: the row has another number of columns
    label: Any  # None: unknown
    group: str = ""  # examples of a group are not divided between train and dev


class Encoded(NamedTuple):
    """The examples of a split as its store has them."""

    texts: list[list[Sequence[int]]]  # the ids of each text of each example, at least one
    arrays: dict[str, np.ndarray | list]  # each becomes NAME.npy, or NAME.json, beside the tokens


@dataclass(frozen=True, kw_only=True)
class Examples(Interface):
    """The EXAMPLES of a task's file, whose keys include DEFAULTS, or UNLABELLED.

    load: (config, path) -> [Example]; reads a file, which may lack labels; an example without texts for a row that
        cannot be used.
    load_inputs: the same of a file to predict; by default `load`.
    parse: (config, texts) -> [Example] without labels.
    names: (config, [Example]) -> the names of the labels of the examples to train on; None without labels, see
        parallel_texts.py.
    target: (config, Example, names) -> what it learns; raises BadInput for a label that is not in `names`.
    encode: (config, tokenizer, [Example], names) -> Encoded, with their targets.
    clean: (config, Encoded) -> (Encoded, {reason: number}); leaves out examples to train on, and counts them. By
        default none is left out.
    widen: (config, [Example], Split, phase) -> the phase with rows that hold all texts to predict. By default
        longer ones are cut.
    decode: (config, store, split, outputs, rows) -> [dict], the prediction for each row, in their order.
    free: keys of the task that do not decide the content of a store, besides FREE.
    """

    load: Callable
    load_inputs: Callable | None = None
    parse: Callable
    names: Callable | None = None
    target: Callable | None = None
    encode: Callable
    clean: Callable | None = None
    widen: Callable | None = None
    decode: Callable | None = None
    free: tuple = ()


def of(config) -> Examples | None:
    """Returns the EXAMPLES of the task; None if its data is running text."""
    return part_of(config, "task").EXAMPLES


def sources(config) -> dict[str, Path | str]:
    """Returns {split: file, or source of a library}: train, and those in `dev`, each named without ENDS."""
    data = config.task.data
    names = {"train": config.task.train}
    for name in config.task.dev:
        split = re.sub(ENDS, "", Path(name).name)
        require(split not in names, "task.dev", config, "expected different names, not train")
        names[split] = name
    if tables.library_of(data):
        return {split: f"{data}[{name}]" for split, name in names.items()}
    return {split: Path(data, name) for split, name in names.items()}


def split_names(config) -> tuple[str, ...]:
    """Returns the names of the splits: those of `sources`, or train and dev if `dev` is empty."""
    return tuple(sources(config)) if config.task.dev else ("train", "dev")


def encode_texts(tokenizer, texts: list[list[str]]) -> list[list[Sequence[int]]]:
    """Returns the ids of each of the texts of each example.

    An empty text becomes one [UNK], since a row without tokens is no row.
    """
    encoded = []
    for start in range(0, len(texts), CHUNK):
        chunk = texts[start : start + CHUNK]
        ids = iter(tokenizer.encode([*chain(*chunk)]))
        encoded += [[array("i", next(ids) or [tokenizer.unk]) for _ in part] for part in chunk]
    return encoded


def label_number(example: Example, label: str, names: list[str]) -> int:
    """Returns the number of a label of an example. Raises BadInput, which names the location, if it is unknown."""
    if label not in names:
        hint = f"not one of those to train on: {', '.join(names[:20])}"
        raise BadInput(f"{example.location}: label {label!r}: {hint}")
    return names.index(label)


def has_labels(config) -> bool:
    """Returns whether the examples of the task have labels."""
    return of(config).names is not None


def takes_tokenizer(config) -> bool:
    """Returns whether the tokenizer is that of another model, instead of that of config.tokenizer."""
    return bool(config.init_from or config.continue_from)


def open_or_build(config, tokenizer=None) -> stores.Store:
    """Opens the store of a task's examples; builds it first if it is missing, with the tokenizer or, without init_from,
    that of config.tokenizer.

    If another process makes the same store in the meantime, opens that one. Raises BadInput if the examples are
    unusable, or if the store is of other examples.
    """
    if not download.exists(config.store):
        require(not remote.is_address(config.store), "store", config, "missing; name a local one")
        can_build = tokenizer or not takes_tokenizer(config)
        hint = "missing; bert-jax finetune makes it, or name that of config.continue_from"
        require(can_build, "store", config, hint)
        try:
            parts, dropped = read(config)
            if not tokenizer:
                texts = [" ".join(example.texts) for example in parts["train"]]
                tokenizer = vocabulary.load_or_train_on_texts(config, texts)
            recorded = made_from(config)
            build(config, tokenizer, parts, Path(config.store), recorded, dropped)
        except (BadInput, Unfinished):
            if not download.exists(config.store):
                raise
    store = stores.open_store(download.local(config.store, hashes=config.verify_store))
    recorded = store.manifest["made_from"] | {"task.labels": store.manifest["labels"]}
    if takes_tokenizer(config):  # the model's is compared with that of the store itself
        recorded = {key: recorded[key] for key in recorded if not key.startswith("tokenizer.")}
    # Files that are missing have no digest.
    requested = {"task.data": recorded["task.data"]} | made_from(config)
    requested["task.labels"] = config.task.get("labels") or recorded["task.labels"]
    origin.check(config, store.path, recorded, requested)
    return store


def made_from(config) -> dict:
    """Returns the config keys and values that decide a store's content. Files are known by their names without
    directories, and task.data by their digest; missing without them."""
    free = {*FREE, *of(config).free}
    keys = {f"task.{key}": value for key, value in config.task.items() if key not in free}
    if not takes_tokenizer(config):
        keys |= origin.tokenizer_keys(config)
    paths = [path for path in sources(config).values() if isinstance(path, Path)]
    if not paths:
        return keys
    keys["task.train"], *dev = [path.name for path in paths]
    keys["task.dev"] = tuple(dev)
    paths = [*chain(*(files_of(config, path) for path in paths))]
    if all(path.is_file() for path in paths):
        keys["task.data"] = files.identify(paths)["sha256"][:16]
    else:
        del keys["task.data"]
    return keys


def files_of(config, path: Path) -> list[Path]:
    """Returns the file of a split, or its parallel files; either may be missing."""
    columns = [*config.task.get("text", ()), config.task.get("label")]
    return [*tables.find_parallel(path, columns).values()] or [path]


def read(config) -> tuple[dict[str, list[Example]], dict[str, int]]:
    """Returns the examples of each split, and the number of rows that were left out of each file.

    Raises BadInput if a file or a label is missing or a split is empty.
    """
    task = of(config)
    parts = {}
    dropped = {}
    for split, source in sources(config).items():
        if isinstance(source, Path) and not files_of(config, source)[0].is_file():
            files = f"no file {source}, no parallel files {source}.COLUMN"
            raise BadInput(f"config.task.data={config.task.data}: {files}")
        loaded = task.load(config, source)
        parts[split] = drop_unusable(loaded, has_labels(config), source)
        dropped[split] = len(loaded) - len(parts[split])
    if not config.task.dev:
        parts = split_off(parts["train"], config.task.heldout)
    for split, examples in parts.items():
        check_labelled(config, split, examples)
    return parts, dropped


def check_labelled(config, split: str, examples: list[Example]) -> None:
    """Raises BadInput for a split without examples, or with one that has no label in a task with labels."""
    if not examples:
        key = "data" if config.task.dev else "heldout"
        hint = f"split {split} of {config.task.data} has no examples"
        raise BadInput(f"config.task.{key}={config.task[key]}: {hint}")
    for example in examples:
        if example.label is None and has_labels(config):
            if "label" in config.task:
                for source in sources(config).values():
                    tables.read(source, [config.task.label])  # raises BadInput without this column
            raise BadInput(f"{example.location}: has no label")


def drop_unusable(examples: list[Example], labelled: bool, source) -> list[Example]:
    """Returns the examples of a source that have texts or a label; an empty line has none. Without labels, all texts
    are needed, and the number of rows with an empty one is printed.

    Skips up to one in a hundred rows with another number of columns, which files of GLUE to train on have, and prints
    how many. Raises BadInput for more.
    """
    broken = [example.location for example in examples if not example.texts]
    if broken:
        message = f"{broken[0]}: {tables.OTHER_COLUMNS}, as {len(broken)} of {len(examples)} rows"
        if len(broken) > len(examples) / 100:
            raise BadInput(message)
        log(f"skipped {message}")
    usable = [example for example in examples if is_usable(example, labelled)]
    empty = len(examples) - len(broken) - len(usable)
    if empty and not labelled:
        log(f"{source}: left out {empty:,} rows with an empty text")
    return usable


def is_usable(example: Example, labelled: bool) -> bool:
    """Returns whether an example has what a task needs: see `drop_unusable`."""
    texts = [*map(has_visible, example.texts)]
    if labelled:
        return example.label is not None or any(texts)
    return bool(texts) and all(texts)


def split_off(examples: list[Example], share: float) -> dict[str, list[Example]]:
    """Returns {"train": examples, "dev": others}: a random share of the groups is held out, always the same."""
    groups = [example.group or number for number, example in enumerate(examples)]
    names = [*dict.fromkeys(groups)]
    key = dataset.draw_key(0, "order", 1, 0, 0)
    order = prng.shuffle(np.arange(len(names)), max(1, len(names)), key)
    heldout = {names[number] for number in order[: round(share * len(names))]}
    parts = {"train": [], "dev": []}
    for group, example in zip(groups, examples, strict=True):
        split = "dev" if group in heldout else "train"
        parts[split].append(example)
    return parts


def build(config, tokenizer, parts: dict, path: Path, recorded=(), dropped=()) -> None:
    """Writes the store of the examples of each split. The file to train on decides the names of the labels.

    parts, dropped: see `read`.
    recorded: see `made_from`.
    """
    check_task(config, tokenizer, config.tokenizer.path or config.init_from)
    task = of(config)
    names = [*config.task.get("labels", ())]
    if not names and has_labels(config):
        # Without `dev`, all splits are of the file to train on; examples to predict are of no file.
        if config.task.dev and "train" in parts:
            named = parts["train"]
        else:
            named = [*chain(*parts.values())]
        names = task.names(config, named)
    encoded = {split: task.encode(config, tokenizer, part, names) for split, part in parts.items()}
    cleaned = {}
    if task.clean and "train" in encoded:
        encoded["train"], cleaned = task.clean(config, encoded["train"])
    for reason, number in cleaned.items():
        if number:
            log(f"train: left out {number:,} examples: {reason}")
    with atomic.new_directory(path, "config.store") as directory:
        counts = {}
        unigrams = 0
        for name, part in encoded.items():
            split = flatten(part, tokenizer)
            write(directory / name, split)
            counts[name] = stores.count_split(split)
            unigrams += np.bincount(split.tokens, minlength=tokenizer.size)
        source = {"source": config.task.data, "format": config.task.name}
        for key in ("documents", "tokens"):
            source[key] = {split: count[key] for split, count in counts.items()}
        keys = {
            "sources": [source],
            "splits": counts,
            "unigram_entropy": stores.entropy(unigrams),
            "labels": names,
            "dropped": dict(dropped),
            "cleaned": cleaned,
            "copies": count_copies(encoded),
        }
        stores.finish(directory, dict(recorded), names, tokenizer, keys)


def count_copies(parts: dict[str, Encoded]) -> dict[str, int]:
    """Returns {split: examples with the tokens of one to train on} of the splits that are evaluated."""
    tokens = {}
    for name, part in parts.items():
        tokens[name] = (array("i", chain(*texts)).tobytes() for texts in part.texts)
    train = tokens.pop("train", ())
    evaluated = {name: [*each] for name, each in tokens.items()}
    copies = {*chain(*evaluated.values())}.intersection(train)
    return {name: sum(map(copies.__contains__, part)) for name, part in evaluated.items()}


def in_memory(config, tokenizer, split: str, chosen: list[Example]) -> stores.Store:
    """Returns a store of the examples of one split, to predict, without files."""
    check_task(config, tokenizer, config.tokenizer.path or config.init_from)
    names = [*config.task.get("labels", ())]
    encoded = of(config).encode(config, tokenizer, chosen, names)
    splits = {split: flatten(encoded, tokenizer)}
    return stores.Store(None, {"special": tokenizer.special}, splits, tokenizer)


def flatten(part: Encoded, tokenizer) -> stores.Split:
    """Returns the examples of a split with their texts one after the other, in memory."""
    texts = [*chain(*part.texts)]
    document_ends = np.cumsum([*map(len, part.texts)], dtype=np.int64)
    sentence_ends = np.cumsum([*map(len, texts)], dtype=np.int64)
    tokens = np.fromiter(chain(*texts), stores.token_type(tokenizer.size), sentence_ends[-1])
    count = len(document_ends)
    arrays = tokens, sentence_ends, document_ends, np.array([count])
    return stores.Split(None, *arrays, range(count), part.arrays)


def write(directory: Path, split: stores.Split) -> None:
    """Writes the arrays and the lists of a split."""
    directory.mkdir()
    arrays = {name: getattr(split, name) for name in stores.ARRAYS}
    for name, values in (arrays | split.values).items():
        if isinstance(values, np.ndarray):
            np.save(directory / f"{name}.npy", values)
        else:
            (directory / f"{name}.json").write_text(json.dumps(values))

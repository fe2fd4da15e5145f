"""Before step 0: what would waste a run is said with its number and its remedy, what cannot work stops it."""

import math
import os
import shutil
import uuid
from pathlib import Path

import jax

from bert_jax import config as configs
from bert_jax.data import batch_files, batch_spec, store_sample
from bert_jax.errors import BadInput
from bert_jax.parallel import mesh as meshes

LEAST_FILL = 0.5
FEW = 100  # rows
MOST_RANDOM = 0.7  # the original's share of random pairs is a little over a half
ONE_SENTENCE = 0.2  # share of the documents
CUT = 0.05  # share of the wanted predictions that are cut off
SPARE = 1.5  # places for predictions, by those that are wanted
WORD_STARTS = 0.15  # share of the tokens that begin a word; Chinese without spaces has fewer
PROBE = 1 << 20  # bytes that are written into the workdir and read back


def check_data(config, data) -> list[str]:
    """Lines about what a run reads, a feed of data/feed.py. Raises BadInput for what cannot work."""
    if data.key == "batches":
        steps = batch_files.describe_steps(data.saved)
        return [f"preflight: {data.path} {steps}, as they were saved"]
    return preflight(config, data.store, data.word_starts)


def preflight(config, store, word_starts) -> list[str]:
    """Warnings about the store, one line each, and a line with the numbers. Raises BadInput for what cannot work.

    word_starts: bool[V], the pieces that start a word. Looks at samples, so that a store of any size takes seconds.
    """
    warnings, fills = check_words(config, store_sample.word_start_share(store, word_starts)), []
    single = store_sample.single_sentence_share(store.splits["train"])
    for phase in configs.phases(config):
        rows = store_sample.survey_rows(store, batch_spec.spec(config, phase.name))
        warnings += check_rows(config, phase, rows, single)
        packed = f", {rows.pairs / rows.rows:.1f} pairs a row" if phase.sequences > 1 else ""
        fills.append(f"{phase.name} {rows.fill:.0%} full{packed}, {rows.pair_ratio:.0%} label 1")
    return [f"preflight: {line}" for line in [*warnings, f"rows {'; '.join(fills)}"]]


def check_place(config, directory: Path, state_shapes) -> list[str]:
    """Warnings about the workdir. Raises BadInput where it cannot be written, or not hold the checkpoints to come."""
    check_writing(directory)
    warnings = check_disk(config, directory, checkpoint_bytes(state_shapes))
    return [f"preflight: {line}" for line in warnings]


def check_micro_batches(config, mesh) -> list[str]:
    """Warnings about phases whose rows divide into far smaller parts than a device could compute at once."""
    warnings, most = [], config.train.rows_per_chip
    for phase in configs.phases(config):
        rows = phase.batch // meshes.axis_size(mesh, meshes.ROWS)
        parts = meshes.micro_batches(mesh, phase.batch, config.train)
        if parts > 1 and 2 * rows // parts <= most:
            warnings.append(
                f"preflight: phases.{phase.name}.batch={phase.batch}: {rows} rows a device are computed in {parts}"
                f" parts of {rows // parts}, no larger equal ones have at most train.rows_per_chip={most} rows"
            )
    return warnings


def check_writing(directory: Path) -> None:
    """Writes a file, reads it back, deletes it."""
    path, content = directory / f".preflight.{uuid.uuid4().hex}", os.urandom(PROBE)
    try:
        with open(path, "wb") as file:
            file.write(content)
            os.fsync(file.fileno())
        same = path.read_bytes() == content
    except OSError as error:
        raise BadInput(f"--workdir {directory}: cannot be written ({error.strerror})") from None
    finally:
        path.unlink(missing_ok=True)
    if not same:
        raise BadInput(f"--workdir {directory}: reads back other bytes than were written")


def checkpoint_bytes(state_shapes) -> int:
    """Size of a checkpoint, but for what compression saves."""
    return sum(math.prod(x.shape) * x.dtype.itemsize for x in jax.tree.leaves(state_shapes))


def check_disk(config, directory: Path, size: int) -> list[str]:
    """Room for the checkpoints to come: the newest ones, one more while it is written, and those that stay."""
    keys, total = config.checkpoint, configs.total_steps(config)
    there = len(list((directory / "checkpoints").glob("[0-9]*")))
    newest = min(keys.keep, math.ceil(total / keys.every)) + 1
    forever = total // keys.keep_every if keys.keep_every else 0
    free = shutil.disk_usage(directory).free
    place = f"{show(free)} are free at {directory}"
    if free < (newest - there) * size:
        raise BadInput(
            f"config.checkpoint.keep={keys.keep}: {newest - there} checkpoints of {show(size)} are to come, {place}"
        )
    if free < (newest + forever - there) * size:
        return [
            f"{newest + forever - there} checkpoints of {show(size)} are to come, {place}; raise"
            f" checkpoint.keep_every={keys.keep_every} or make room"
        ]
    return []


def show(size: int) -> str:
    return f"{size / 1e9:,.1f} GB" if size >= 1e9 else f"{size / 1e6:,.1f} MB"


def check_words(config, starts: float) -> list[str]:
    """`starts` is the share of the tokens that begin a word."""
    if config.objective.masking == "whole_word" and starts < WORD_STARTS:
        return [
            f"objective.masking='whole_word': {starts:.0%} of the tokens begin a word, so words are too"
            " long to be masked whole; this vocabulary does not part the text's words, set objective.masking=token"
        ]
    return []


def check_rows(config, phase, rows, single: float) -> list[str]:
    """Warnings about what a phase's rows will be like; `single` is the share of documents of one sentence."""
    warnings, key = check_pairs(config, phase, rows, single), f"phases.{phase.name}"
    if rows.fill < LEAST_FILL:
        warnings.append(
            f"rows are {rows.fill:.0%} full, the rest is padding: documents are short for {key}.length="
            f"{phase.length}; a smaller length wastes less, and so do several pairs in a row (now"
            f" {key}.sequences={phase.sequences})"
        )
    if rows.given < (1 - CUT) * rows.wanted:
        warnings.append(
            f"{key}.predictions={phase.predictions} cuts off {1 - rows.given / rows.wanted:.0%} of the masked"
            f" positions that objective.mask_rate={config.objective.mask_rate} asks for;"
            f" {most(config, phase)} would hold all"
        )
    if phase.predictions > SPARE * max(4, most(config, phase)):
        warnings.append(
            f"{key}.predictions={phase.predictions} is computed for every row, but none has more than"
            f" {most(config, phase)}"
        )
    return warnings


def check_pairs(config, phase, rows, single: float) -> list[str]:
    """Whether there is something to learn from pairs; of a few nothing can be said."""
    pairs, ratio = config.objective.pairs, rows.pair_ratio
    if pairs == "none" or rows.pairs < FEW:
        return []
    cause = (
        f"{single:.0%} of the documents have one sentence; check corpus.format and corpus.sentences"
        if single > ONE_SENTENCE
        else f"sentences are long for phases.{phase.name}.length={phase.length}; check corpus.sentences"
    )
    if ratio in (0.0, 1.0):
        raise BadInput(
            f"config.objective.pairs={pairs!r}: all {rows.pairs} pairs looked at have the label {ratio:.0f}, so there"
            f" is nothing to learn: {cause}, or set objective.pairs=none"
        )
    if ratio > MOST_RANDOM:
        return [
            f"{ratio:.0%} of the pairs have label 1, expected a little over half: {cause}, or set objective.pairs=none"
        ]
    return []


def most(config, phase) -> int:
    """Masked positions of a full row: each pair has its own, rounded."""
    rate, pairs = config.objective.mask_rate, phase.sequences
    return max(pairs, math.floor(rate * phase.length + pairs / 2))

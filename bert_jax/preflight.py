"""Before step 0: what would waste a run is said with its number and its remedy, what cannot work stops it."""

import math
import os
import shutil
from pathlib import Path

import jax

from bert_jax import config as configs
from bert_jax.errors import BadInput

LEAST_FILL = 0.5
PAIR_RATIO = 0.35, 0.7  # the original's share of random pairs is a little over a half
CUT = 0.05  # share of the wanted predictions that are cut off
SPARE = 1.5  # places for predictions, by those that are wanted
WORD_STARTS = 0.15  # share of the tokens that begin a word; Chinese without spaces has fewer
PROBE = 1 << 20  # bytes that are written into the workdir and read back


def preflight(config, directory: Path, store, word_starts, state_shapes) -> list[str]:
    """Warnings, one line each, and a last line with the numbers. Raises BadInput for what cannot work.

    word_starts: bool[V], the pieces that start a word. Looks at the first phase's rows; `directory` exists, and nothing
    of the run is in it yet.
    """
    from bert_jax.data import stream, survey

    check_writing(directory)
    warnings = check_disk(config, directory, checkpoint_bytes(state_shapes))
    phase = configs.phases(config)[0]
    numbers = survey.survey(store, stream.spec(config, phase.name), word_starts)
    check_store(store, numbers)
    warnings += check_rows(config, phase, numbers)
    summary = (
        f"fill {numbers.fill:.2f}, pair ratio {numbers.pair_ratio:.2f}, {numbers.given:.1f} predictions a row,"
        f" none of {numbers.compared} held-out documents in training, workdir written and read back"
    )
    return [f"preflight: {line}" for line in [*warnings, summary]]


def check_writing(directory: Path) -> None:
    """Writes a file, reads it back, deletes it."""
    path, content = directory / f".preflight.{os.getpid()}", os.urandom(PROBE)
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
    newest = (min(keys.keep, math.ceil(total / keys.every)) + 1) * size
    forever = total // keys.keep_every * size if keys.keep_every else 0
    free = shutil.disk_usage(directory).free
    numbers = f"{free / 1e9:,.1f} GB free at {directory}"
    if free < newest:
        raise BadInput(
            f"config.checkpoint.keep={keys.keep}: checkpoints of {size / 1e9:,.2f} GB need"
            f" {newest / 1e9:,.1f} GB, {numbers}"
        )
    if free < newest + forever:
        return [
            f"checkpoints will need {(newest + forever) / 1e9:,.1f} GB by the last step, {numbers};"
            f" raise checkpoint.keep_every={keys.keep_every} or make room"
        ]
    return []


def check_store(store, numbers) -> None:
    """What no store of prepare has."""
    if numbers.largest_id >= store.manifest["vocabulary"]:
        raise BadInput(
            f"{store.path}: id {numbers.largest_id} is beyond the vocabulary of {store.manifest['vocabulary']} pieces"
        )
    if numbers.overlap:
        raise BadInput(
            f"{store.path}: {numbers.overlap} of {numbers.compared} held-out documents are in the training"
            " split too; prepare into a new directory"
        )


def check_rows(config, phase, numbers) -> list[str]:
    """Warnings about what the first phase's rows will be like."""
    warnings, key = [], f"phases.{phase.name}"
    if numbers.fill < LEAST_FILL:
        warnings.append(
            f"rows are {numbers.fill:.0%} full, the rest is padding: documents are short for {key}.length="
            f"{phase.length}; a smaller length wastes less"
        )
    pairs, ratio = config.objective.pairs, numbers.pair_ratio
    if pairs != "none" and ratio in (0.0, 1.0):
        raise BadInput(
            f"config.objective.pairs={pairs!r}: all {numbers.rows} rows looked at have the label {ratio:.0f}, so there"
            " is nothing to learn: documents are of one sentence; set objective.pairs=none"
        )
    if pairs != "none" and not PAIR_RATIO[0] <= ratio <= PAIR_RATIO[1]:
        warnings.append(
            f"{ratio:.0%} of the pairs have label 1, expected about half: many documents are of one sentence;"
            " check corpus.format and corpus.sentences, or set objective.pairs=none"
        )
    if numbers.given < (1 - CUT) * numbers.wanted:
        warnings.append(
            f"{key}.predictions={phase.predictions} cuts off {1 - numbers.given / numbers.wanted:.0%} of the masked"
            f" positions that objective.mask_rate={config.objective.mask_rate} asks for;"
            f" {most(config, phase)} would hold all"
        )
    if config.objective.masking == "whole_word" and numbers.word_starts < WORD_STARTS:
        warnings.append(
            f"objective.masking='whole_word': {numbers.word_starts:.0%} of the tokens begin a word, so words are too"
            " long to be masked whole; this vocabulary does not part the text's words, set objective.masking=token"
        )
    if phase.predictions > SPARE * max(4, most(config, phase)):
        warnings.append(
            f"{key}.predictions={phase.predictions} is computed for every row, but none has more than"
            f" {most(config, phase)}"
        )
    return warnings


def most(config, phase) -> int:
    """Masked positions of a full row."""
    return max(1, round(config.objective.mask_rate * phase.length))

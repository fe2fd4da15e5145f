"""What a command answers: text for people, and JSON where --json says."""

import contextlib
import json
import math
import os
import sys
from pathlib import Path

from bert_jax.errors import BadInput, Unfinished


def check_json(options) -> None:
    """Before hours of work, not after them."""
    if getattr(options, "json", None) in (None, "-"):
        return
    path = Path(options.json).absolute()
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise BadInput(f"--json {options.json}: cannot be written")


def show(options, values, text: str) -> int:
    """Prints results for people, and as JSON where --json says; numbers that are not finite become null."""
    encoded = json.dumps(finite(values), indent=2, allow_nan=False)
    if options.json not in (None, "-"):
        with writing(f"--json {options.json}"):
            Path(options.json).write_text(encoded + "\n")
    with writing("standard output"):
        print(encoded if options.json == "-" else text, flush=True)
    return 0


@contextlib.contextmanager
def writing(name: str):
    """What cannot be written, as on a full disk, is told in a line."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Unfinished(f"{name}: {error.strerror}") from None


def finite(values):
    if isinstance(values, dict):
        return {key: finite(value) for key, value in values.items()}
    if isinstance(values, list | tuple):
        return [finite(value) for value in values]
    return None if isinstance(values, float) and not math.isfinite(values) else values


def tell(text: str) -> None:
    """Progress, apart from the results on standard output."""
    print(text, file=sys.stderr, flush=True)


def silent(text: str) -> None:
    """What `tell` is in processes that do not speak."""

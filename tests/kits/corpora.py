"""Writes small corpora, prepares and reads their stores, and starts `prepare` in another process."""

import contextlib
import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np

from bert_jax import config as configs
from bert_jax.data import store as stores
from bert_jax.data.preparation import corpus
from bert_jax.data.preparation import prepare as preparing
from bert_jax.data.sources import files as files_of_text
from bert_jax.data.sources.problems import numbers_of

WORDS = "the a cat dog bird saw ate took found old small red house tree fish and then it was not".split()


def make_text(documents: int, seed: int = 0) -> list[str]:
    """Returns documents of random sentences, one sentence per line."""
    draw = random.Random(seed)

    def sentence() -> str:
        return " ".join(draw.choices(WORDS, k=draw.randrange(3, 12)))

    return ["\n".join(sentence() for _ in range(draw.randrange(1, 6))) for _ in range(documents)]


def write(path: Path, documents) -> Path:
    """Writes documents, or bytes unchanged, to a text file of the format `lines`."""
    text = documents if isinstance(documents, bytes) else "\n\n".join(documents).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text)
    return path


def config_of(directory: Path, documents, *overrides):
    """Returns a config with these documents as its corpus, one worker and a vocabulary of 200 pieces."""
    keys = {
        "corpus.source": write(directory / "corpus.txt", documents),
        "corpus.workers": 1,
        "corpus.heldout": 0.1,
        "tokenizer.size": 200,
        "store": directory / "store",
    }
    return configs.load("demo", [f"{key}={value}" for key, value in keys.items()] + [*overrides])


def halves() -> tuple[list[str], list[str]]:
    """Returns the documents of two sources: ten are in both, and some of the first are similar to one of the second."""
    texts = make_text(300)
    for number in range(0, 300, 30):
        texts[number] += "\nit was not"
    similar = [f"{text} tree" for text in texts[:150] if len(text) > 150]
    return texts[190:] + texts[:10] + similar, texts[:200]


def two_sources(directory: Path, *overrides):
    """Returns a config with the two sources of `halves`."""
    first, second = halves()
    source = f"corpus.source={write(directory / 'other.txt', first)},{directory}/corpus.txt"
    return config_of(directory, second, source, "corpus.format=lines,lines", *overrides)


def small_parts(monkeypatch) -> None:
    """Reduces the block size, so that a small corpus has many blocks and shards."""
    monkeypatch.setattr(files_of_text, "PIECE", 1000)


def prepare(config, log=lambda line: None) -> stores.Store:
    preparing.prepare(config, log)
    return stores.open_store(config.store, hashes=True)


def report_of(store) -> dict:
    return json.loads((store.path / "report.json").read_text())


def read(split: stores.Split) -> list[list[tuple]]:
    """Returns the documents of a split: lists of sentences, which are tuples of ids."""
    sentences = [tuple(ids.tolist()) for ids in np.split(split.tokens, split.sentence_ends[:-1])]
    starts = [0, *split.document_ends[:-1]]
    return [sentences[a:b] for a, b in zip(starts, split.document_ends, strict=True)]


def read_sources(sources) -> tuple[list, dict]:
    """Returns (documents of sentences, {problem: count}) of all sources."""
    problems = Counter()
    documents = []
    for source in sources:
        for block in source.blocks(problems):
            documents += corpus.documents(block, problems)
    return documents, numbers_of(problems)


def files(directory) -> dict:
    paths = sorted(path for path in Path(directory).rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in paths}


def encode_lines(encode, text: str) -> list[tuple]:
    return [tuple(ids) for ids in encode(text.split("\n"))]


def shard_files(config) -> list[Path]:
    """Returns the finished shards of a store that is being prepared."""
    store = Path(config.store)
    return sorted((store.parent / f".{store.name}.preparing").glob("*/shards/*.npz"))


# Small blocks and shards, so that there are many. A background job of a shell ignores SIGINT: undo that.
PROGRAM = """
import signal, sys
from bert_jax import cli
from bert_jax.data.sources import files
files.PIECE = 60_000
signal.signal(signal.SIGINT, signal.default_int_handler)
{before}
sys.exit(cli.main(["prepare", "--config", {path!r}, *{options!r}]))
"""


def start(config, directory: Path, before: str = "", options=()) -> subprocess.Popen:
    """Starts `prepare` in a new process and session. before: code that it runs first."""
    path = directory / "config.json"
    configs.save(config, path)
    code = PROGRAM.format(path=str(path), before=before, options=options)
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return subprocess.Popen([sys.executable, "-c", code], start_new_session=True, **pipes)


def processes(session: int) -> int:
    """Returns the number of running processes of a session, without zombies."""
    alive = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # the process may have ended
            state, _, _, its_session, *_ = path.read_text().rpartition(")")[2].split()
            alive += int(its_session) == session and state != "Z"
    return alive

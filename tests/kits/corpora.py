"""Small corpora as text, their stores, and what stands in them."""

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np

from bert_jax import config as configs
from bert_jax.data import corpus
from bert_jax.data import prepare as preparing
from bert_jax.data import store as stores

WORDS = "the a cat dog bird saw ate took found old small red house tree fish and then it was not".split()


def make_text(documents: int, seed: int = 0) -> list[str]:
    """Documents of random sentences, a sentence a line."""
    draw = random.Random(seed)
    return [
        "\n".join(
            " ".join(draw.choices(WORDS, k=draw.randrange(3, 12)))
            for _ in range(draw.randrange(1, 6))
        )
        for _ in range(documents)
    ]


def write(path: Path, documents) -> Path:
    """Documents, or bytes as they are, as a text file of the format `lines`."""
    text = documents if isinstance(documents, bytes) else "\n\n".join(documents).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text)
    return path


def config_of(directory: Path, documents, *overrides):
    """A config whose corpus the documents are; one process, a vocabulary of 200 pieces."""
    keys = {
        "corpus.source": write(directory / "corpus.txt", documents),
        "corpus.workers": 1,
        "corpus.heldout": 0.1,
        "tokenizer.size": 200,
        "store": directory / "store",
    }
    return configs.load("demo", [f"{key}={value}" for key, value in keys.items()] + [*overrides])


def prepare(config, log=lambda line: None) -> stores.Store:
    preparing.prepare(config, log)
    return stores.open_store(config.store, hashes=True)


def report_of(store) -> dict:
    return json.loads((store.path / "report.json").read_text())


def halves() -> tuple[list[str], list[str]]:
    """Documents of two sources: ten stand in both, and of those in the first some are like one in the second."""
    texts = [text + "\nit was not" * (not n % 30) for n, text in enumerate(make_text(300))]
    similar = [f"{text} tree" for text in texts[:150] if len(text) > 150]
    return texts[190:] + texts[:10] + similar, texts[:200]


def two_sources(make, tmp_path: Path, *overrides):
    """make(documents, key=value...) -> a config; of `halves`."""
    first, second = halves()
    write(tmp_path / "other.txt", first)
    source = f"corpus.source={tmp_path}/other.txt,{tmp_path}/corpus.txt"
    return make(second, source, "corpus.format=lines,lines", *overrides)


def read(split: stores.Split) -> list[list[tuple]]:
    """Documents of sentences of ids."""
    sentences = np.split(split.tokens, split.sentence_ends[:-1])
    sentences = [tuple(sentence.tolist()) for sentence in sentences]
    starts = [0, *split.document_ends[:-1]]
    return [sentences[a:b] for a, b in zip(starts, split.document_ends, strict=True)]


def read_sources(sources) -> tuple[list, dict]:
    """Of all sources (documents of sentences, what was wrong with them)."""
    problems, found = Counter(), []
    for source in sources:
        for block in source.blocks(problems):
            found += corpus.documents(block, source.reading, problems)
    return found, dict(problems)


def files(directory) -> dict:
    paths = sorted(path for path in Path(directory).rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in paths}


def encode_lines(encode, text: str) -> list[tuple]:
    return [tuple(ids) for ids in encode(text.split("\n"))]


# --- prepare in a process of its own --------------------------------------------------------------

# Small blocks and shards, so that there are many; an error as the command line tells it.
PROGRAM = """
import signal, sys
from bert_jax import config, main
from bert_jax.data import corpus
from bert_jax.data.preparing import shards
corpus.BLOCK, shards.BLOCKS = 20_000, 3
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's job in the background has it ignored
{before}
sys.exit(main.main(["prepare", "--config", {path!r}, *{options!r}]))
"""


def start(config, directory: Path, before: str = "", options=()) -> subprocess.Popen:
    """A process, in a session of its own, that prepares with these options; `before` is code that it runs first."""
    path = directory / "config.json"
    configs.save(config, path)
    code = PROGRAM.format(path=str(path), before=before, options=options)
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return subprocess.Popen([sys.executable, "-c", code], start_new_session=True, **pipes)


def wait_for(condition, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def shard_files(config) -> list[Path]:
    store = Path(config.store)
    return sorted((store.parent / f".{store.name}.preparing" / "shards").glob("*.shard"))


def processes(session: int) -> int:
    """How many processes of a session live."""
    fields = [read_stat(path) for path in Path("/proc").glob("[0-9]*/stat")]
    return sum(int(field[3]) == session and field[0] != "Z" for field in fields if field)


def read_stat(path: Path) -> list[str]:
    try:
        return path.read_text().rpartition(")")[2].split()
    except OSError:
        return []


def kill(process: subprocess.Popen, number: int = signal.SIGKILL) -> tuple[str, str]:
    """Kills the parent alone; its workers have to end by themselves. Returns what it had told."""
    process.send_signal(number)
    told = process.communicate(timeout=60)
    wait_for(lambda: processes(process.pid) == 0)
    return told

"""Speed and memory of `bert-jax prepare`, compared with another commit, its encoder alone, and other libraries.

    python benchmarks/prepare.py VOCABULARY FILE [--format wiki] [--commit COMMIT] [--turns 3] [--megabytes 8]
        [--config.KEY=VALUE ...]

VOCABULARY is a vocab.txt, a SentencePiece .model or a tokenizer.json, or the number of pieces of a vocabulary that
`prepare` trains. A FILE.xz is decompressed first. All sides run in turns. Prints Markdown rows:

- `bert-jax prepare`, from text to store, by wall-clock time, also of COMMIT in a worktree;
- the encoder alone, on all cores, to whose processes the sentences of the same text are already in memory;
- for a file, tokenization alone, of the first lines of FILE in one thread, by CPU time, compared with the library that
  VOCABULARY belongs to and, for a vocab.txt, with BertTokenizerLegacy of transformers, which splits words in Python
  like the original script.

On a shared machine only CPU times are comparable.
"""

import contextlib
import functools
import itertools
import json
import lzma
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # before tokenizers is imported: one thread

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT))

from benchmarks import timed  # noqa: E402
from bert_jax import config  # noqa: E402
from bert_jax.cli import Parser, positive  # noqa: E402
from bert_jax.data.preparation import corpus, pool  # noqa: E402
from bert_jax.errors import BadInput  # noqa: E402
from bert_jax.tokenizers import tokenizer  # noqa: E402

TARGETS = {".txt": "5 MB/s", ".model": "15 MB/s"}  # text to store
SHARE = 0.7  # of the speed of the encoder alone
OURS = "ours"
PYTHON_LINES = 20  # encodes only one line in 20: splitting words in Python is slow


class Prepared(NamedTuple):
    """The measurements of one `bert-jax prepare`."""

    megabytes: float
    rate: float  # megabytes per second of wall-clock time, as it reports
    used: timed.Used


class Side(NamedTuple):
    """A tokenizer to compare."""

    encode: Callable[[list[str]], list[list[int]]]
    every: int = 1  # encodes only every n-th line


def main(arguments: list[str] | None = None) -> int:
    parser = Parser(description=__doc__.splitlines()[0])
    parser.add_argument("vocabulary", metavar="VOCABULARY")
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument("--format", default="wiki", help="config.corpus.format of FILE")
    parser.add_argument("--commit", default="", help="prepares with it, too")
    parser.add_argument("--turns", type=positive, default=3)
    parser.add_argument("--megabytes", type=positive, default=8, help="to tokenize alone")
    try:
        options, overrides = parser.parse_known_args(arguments)
        vocabulary = Path(options.vocabulary)
        is_trained = options.vocabulary.isdigit()
        for path in (options.file, *([] if is_trained else [vocabulary])):
            if not path.is_file():
                raise BadInput(f"{path}: no such file")
        key = f"size={vocabulary}" if is_trained else f"path={vocabulary.absolute()}"
        overrides.append(f"--config.tokenizer.{key}")
        settings = config.load("bert_base", [key.removeprefix("--config.") for key in overrides])
        sides = {} if is_trained else make_sides(vocabulary, settings.tokenizer.lowercase)
        lines = read(str(options.file), options.megabytes)
        with tempfile.TemporaryDirectory() as scratch, checkout(options.commit) as trees:
            scratch = Path(scratch)
            text = unpacked(options.file, scratch)
            overrides.append(f"--config.corpus.source={text}")
            overrides.append(f"--config.corpus.format={options.format}")
            runs = {name: [] for name in trees}
            alone = []
            rates = {name: [] for name in sides}
            for _ in range(options.turns):
                for name, tree in trees.items():
                    runs[name].append(prepare(tree, scratch / "run", overrides))
                alone.append(encoder_rate(scratch / "run/store/tokenizer", overrides))
                shutil.rmtree(scratch / "run")
                for name, side in sides.items():
                    rates[name].append(rate(side, lines))
    except BadInput as error:
        print(f"prepare.py: {error}", file=sys.stderr)
        return 2
    print(describe_prepare(vocabulary, runs))
    print(describe_alone(runs[OURS], alone))
    if sides:
        print(describe_ids(options, rates, count_equal(sides, lines)))
    return 0


@contextlib.contextmanager
def checkout(commit: str) -> Iterator[dict[str, Path]]:
    """Yields {name: directory to run in}, ours last; that of a commit is a worktree."""
    if not commit:
        yield {OURS: Path.cwd()}
        return
    git = ["git", "-C", str(ROOT), "worktree"]
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch) / "tree"
        timed.run([*git, "add", "--detach", str(tree), commit])
        # An installation finds this checkout's configs instead.
        (tree / "bert_jax/configs").symlink_to(tree / "configs")
        try:
            yield {commit: tree, OURS: Path.cwd()}
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def make_sides(path: Path, lowercase: bool) -> dict[str, Side]:
    """Returns {name: Side}, ours first; the ids are without [CLS] and [SEP]."""
    opened = tokenizer.from_file(path, lowercase)

    def ours(lines):
        ids, ends = opened.corpus_encoder()([[line] for line in lines])  # with an empty cache
        starts = [0, *ends[:-1]]
        return [ids[start:end] for start, end in zip(starts, ends, strict=True)]

    sides = {OURS: Side(ours)}
    if path.suffix == ".model":
        import sentencepiece

        model = sentencepiece.SentencePieceProcessor(model_file=str(path))
        name = f"sentencepiece {version('sentencepiece')}"
        return sides | {name: Side(functools.partial(model.encode, num_threads=1))}
    import tokenizers

    name = f"tokenizers {version('tokenizers')}"
    if path.suffix == ".json":
        return sides | {name: Side(by_library(tokenizers.Tokenizer.from_file(str(path))))}
    import transformers
    from transformers.models.bert.tokenization_bert_legacy import BertTokenizerLegacy

    library = transformers.BertTokenizer(str(path), do_lower_case=lowercase).backend_tokenizer
    in_python = BertTokenizerLegacy(str(path), do_lower_case=lowercase)

    def legacy(lines):
        return [in_python.convert_tokens_to_ids(in_python.tokenize(line)) for line in lines]

    in_python_name = f"BertTokenizerLegacy of transformers {version('transformers')}, in Python"
    return sides | {name: Side(by_library(library)), in_python_name: Side(legacy, PYTHON_LINES)}


def by_library(model) -> Callable[[list[str]], list[list[int]]]:
    def encode(lines):
        return [line.ids for line in model.encode_batch_fast(lines, add_special_tokens=False)]

    return encode


def rate(side: Side, lines: list[str]) -> float:
    """Returns megabytes per CPU second."""
    lines = lines[:: side.every]
    start = time.process_time()
    side.encode(lines)
    seconds = time.process_time() - start
    return sum(len(line.encode()) for line in lines) / 1e6 / seconds


def count_equal(sides: dict[str, Side], lines: list[str]) -> dict[str, tuple[int, int]]:
    """Returns {name of another tokenizer: (lines with the same ids as ours, lines compared)}."""
    counts = {}
    for name, side in sides.items():
        if name != OURS:
            some = lines[:: side.every]
            pairs = zip(sides[OURS].encode(some), side.encode(some), strict=True)
            counts[name] = sum(list(a) == list(b) for a, b in pairs), len(some)
    return counts


def unpacked(file: Path, scratch: Path) -> Path:
    if file.suffix != ".xz":
        return file.absolute()
    text = scratch / file.stem
    with lzma.open(file) as packed, open(text, "wb") as plain:
        shutil.copyfileobj(packed, plain)
    return text


def prepare(tree: Path, directory: Path, overrides: list[str]) -> Prepared:
    """Prepares `directory`/store with the code in `tree`."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    file = directory / "report.json"
    command = [sys.executable, "-m", "bert_jax", "prepare", "--config", "bert_base"]
    command += [f"--config.store={directory / 'store'}", f"--json={file}", *overrides]
    used = timed.run(command, cwd=tree, env=os.environ | {"TOKENIZERS_PARALLELISM": "true"})
    report = json.loads(file.read_text())
    megabytes = report["megabytes_per_second"] * report["seconds"]
    return Prepared(megabytes, report["megabytes_per_second"], used)


def encoder_rate(directory: Path, overrides: list[str]) -> float:
    """Returns the megabytes a second of the encoder of a tokenizer alone, on all cores."""
    context = get_context("spawn")
    barrier = context.Barrier(pool.cores())
    queue = context.SimpleQueue()
    keys = [key.removeprefix("--config.") for key in overrides]
    processes = []
    for number in range(barrier.parties):
        arguments = directory, keys, number, barrier, queue
        processes.append(context.Process(target=encode_share, args=arguments))
        processes[-1].start()
    shares = [queue.get() for _ in processes]
    for process in processes:
        process.join()
    sizes, starts, ends = zip(*shares, strict=True)
    return sum(sizes) / 1e6 / (max(ends) - min(starts))


def encode_share(directory: Path, keys: list[str], number: int, barrier, queue) -> None:
    """Runs in a process: encodes every n-th block, and sends its bytes of text, start and end. Sentences are read
    before the start, and the cache is empty."""
    [source] = corpus.open_sources(config.load("bert_base", keys))
    blocks = source.blocks(Counter())
    size = 0
    share = []
    for block in itertools.islice(blocks, number, None, barrier.parties):
        size += block.size
        share.append(corpus.documents(block, Counter()))
    encode = tokenizer.load(directory).corpus_encoder()
    barrier.wait()
    start = time.monotonic()
    for documents in share:
        encode(documents)
    queue.put((size, start, time.monotonic()))


def describe_prepare(vocabulary: Path, runs: dict[str, list[Prepared]]) -> str:
    ours = runs[OURS]
    peak = max(run.used.peak for run in ours)
    others = [name for name in runs if name != OURS]
    reference = "; ".join(
        f"{name}: {describe_runs(runs[name])}; ours **{median(ours) / median(runs[name]):.2f} x**"
        for name in others
    )
    return (
        f"| prepare, {vocabulary.name}, {ours[0].megabytes:.0f} MB of text to a store"
        f" | {TARGETS.get(vocabulary.suffix, '-')} | {describe_runs(ours)};"
        f" peak memory of the largest process {peak / 1e6:.0f} MB | {reference or '-'} |"
    )


def describe_runs(runs: list[Prepared]) -> str:
    rates = ", ".join(f"{run.rate:.1f}" for run in runs)
    cpu_seconds = ", ".join(f"{run.used.cpu_seconds:.0f}" for run in runs)
    seconds = ", ".join(f"{run.used.seconds:.0f}" for run in runs)
    return f"{rates} MB/s of wall-clock time; the command {seconds} s, {cpu_seconds} s of CPU time"


def describe_alone(runs: list[Prepared], alone: list[float]) -> str:
    rates = ", ".join(f"{rate:.1f}" for rate in alone)
    share = median(runs) / statistics.median(alone)
    return f"| the same, by its encoder alone | {SHARE} | {share:.2f} | {rates} MB/s |"


def median(runs: list[Prepared]) -> float:
    """Returns the median rate."""
    return statistics.median(run.rate for run in runs)


def describe_ids(options, rates: dict[str, list[float]], same: dict) -> str:
    medians = {name: statistics.median(values) for name, values in rates.items()}
    mine = medians.pop(OURS)
    others = "; ".join(
        f"{theirs:.2f}, ours **{mine / theirs:.1f} x**, ids of {same[name][0]:,} of {same[name][1]:,} lines equal"
        f" ({name})"
        for name, theirs in medians.items()
    )
    return (
        f"| tokenization alone, {options.megabytes} MB of it, one thread, MB per CPU second | -"
        f" | {mine:.2f} (median of {options.turns}) | {others} |"
    )


def read(path: str, megabytes: float) -> list[str]:
    lines = []
    size = 0
    open_text = lzma.open if path.endswith(".xz") else open
    with open_text(path, "rt", encoding="utf-8") as file:
        for line in filter(None, map(str.strip, file)):
            if not line.startswith("<"):
                lines.append(line)
                size += len(line.encode())
            if size > megabytes * 1e6:
                break
    return lines


if __name__ == "__main__":
    sys.exit(main())

"""Speed and memory of `bert-jax prepare`, and its tokenizer compared with other libraries, which run in turns.

    python benchmarks/prepare.py VOCABULARY FILE [--format wiki] [--turns 3] [--megabytes 8] [--config.KEY=VALUE ...]

VOCABULARY is a vocab.txt, a SentencePiece .model or a tokenizer.json. A FILE.xz is decompressed first. Prints two
Markdown rows. The first is `bert-jax prepare`, from text to store, by wall-clock time. The second is tokenization
alone, of the first lines of FILE in one thread, by CPU time, compared with the library that VOCABULARY belongs to and,
for a vocab.txt, with BertTokenizerLegacy of transformers, which splits words in Python like the original script. On a
shared machine only CPU times are comparable.
"""

import functools
import json
import lzma
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # before tokenizers is imported: one thread

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT))

from benchmarks import timed  # noqa: E402
from bert_jax import config  # noqa: E402
from bert_jax.cli import Parser, positive  # noqa: E402
from bert_jax.errors import BadInput  # noqa: E402
from bert_jax.tokenizers import tokenizer  # noqa: E402

TARGETS = {".txt": "5 MB/s", ".model": "15 MB/s"}  # text to store
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
    parser.add_argument("vocabulary", type=Path, metavar="VOCABULARY")
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument("--format", default="wiki", help="config.corpus.format of FILE")
    parser.add_argument("--turns", type=positive, default=3)
    parser.add_argument("--megabytes", type=positive, default=8, help="to tokenize alone")
    try:
        options, overrides = parser.parse_known_args(arguments)
        for path in (options.vocabulary, options.file):
            if not path.is_file():
                raise BadInput(f"{path}: no such file")
        overrides.append(f"--config.tokenizer.path={options.vocabulary.absolute()}")
        settings = config.load("bert_base", [key.removeprefix("--config.") for key in overrides])
        sides = make_sides(options.vocabulary, settings.tokenizer.lowercase)
        lines = read(str(options.file), options.megabytes)
        with tempfile.TemporaryDirectory() as scratch:
            text = unpacked(options.file, Path(scratch))
            overrides.append(f"--config.corpus.source={text}")
            overrides.append(f"--config.corpus.format={options.format}")
            runs = []
            rates = {name: [] for name in sides}
            for turn in range(options.turns):
                runs.append(prepare(Path(scratch) / f"{turn}", overrides))
                for name, side in sides.items():
                    rates[name].append(rate(side, lines))
    except BadInput as error:
        print(f"prepare.py: {error}", file=sys.stderr)
        return 2
    print(describe_prepare(options.vocabulary, runs))
    print(describe_ids(options, rates, count_equal(sides, lines)))
    return 0


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


def prepare(directory: Path, overrides: list[str]) -> Prepared:
    directory.mkdir()
    file = directory / "report.json"
    command = [sys.executable, "-m", "bert_jax", "prepare", "--config", "bert_base"]
    used = timed.run(
        [*command, f"--config.store={directory / 'store'}", f"--json={file}", *overrides]
    )
    report = json.loads(file.read_text())
    shutil.rmtree(directory)
    megabytes = report["megabytes_per_second"] * report["seconds"]
    return Prepared(megabytes, report["megabytes_per_second"], used)


def describe_prepare(vocabulary: Path, runs: list[Prepared]) -> str:
    rates = ", ".join(f"{run.rate:.1f}" for run in runs)
    cpu_seconds = ", ".join(f"{run.used.cpu_seconds:.0f}" for run in runs)
    peak = max(run.used.peak for run in runs)
    return (
        f"| prepare, {vocabulary.name}, {runs[0].megabytes:.0f} MB of text to a store"
        f" | {TARGETS.get(vocabulary.suffix, '-')} | {rates} MB/s of wall-clock time; {cpu_seconds} s of CPU time;"
        f" peak memory of the largest process {peak / 1e6:.0f} MB | |"
    )


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

"""Speed and memory of prepare, and its tokenizer beside the libraries of others, in turns in one run.

    python benchmarks/prepare.py VOCABULARY FILE [--format wiki] [--turns 3] [--megabytes 8] [--config.KEY=VALUE ...]

VOCABULARY is a vocab.txt, a SentencePiece .model or a tokenizer.json; a FILE.xz is unpacked before. Prints a Markdown
row of `bert-jax prepare`, text to store, by the clock, and one of the ids alone: the first lines of FILE by one thread,
by seconds of processors, beside the library that VOCABULARY is for and, for a vocab.txt, beside BertTokenizerLegacy of
transformers, which cuts words in Python as the original script does. On a machine that others use, only seconds of
processors can be compared.
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
PYTHON_LINES = 20  # one in so many: words cut in Python take long


class Whole(NamedTuple):
    """Of a `prepare`."""

    megabytes: float
    rate: float  # megabytes a second by the clock, as it reports it
    used: timed.Used


class Side(NamedTuple):
    encode: Callable[[list[str]], list[list[int]]]
    every: int = 1  # of so many lines one


def main(arguments: list[str] | None = None) -> int:
    parser = Parser(description=__doc__.splitlines()[0])
    parser.add_argument("vocabulary", type=Path, metavar="VOCABULARY")
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument("--format", default="wiki", help="config.corpus.format of FILE")
    parser.add_argument("--turns", type=positive, default=3)
    parser.add_argument("--megabytes", type=positive, default=8, help="whose ids alone are made")
    try:
        options, more = parser.parse_known_args(arguments)
        for path in (options.vocabulary, options.file):
            if not path.is_file():
                raise BadInput(f"{path}: no such file")
        more = [*more, f"--config.tokenizer.path={options.vocabulary.absolute()}"]
        settings = config.load("bert_base", [key.removeprefix("--config.") for key in more])
        sides = make_sides(options.vocabulary, settings.tokenizer.lowercase)
        lines = read(str(options.file), options.megabytes)
        with tempfile.TemporaryDirectory() as scratch:
            text = unpacked(options.file, Path(scratch))
            more += [f"--config.corpus.source={text}", f"--config.corpus.format={options.format}"]
            wholes, rates = [], {name: [] for name in sides}
            for turn in range(options.turns):
                wholes.append(prepare(Path(scratch) / f"{turn}", more))
                for name, side in sides.items():
                    rates[name].append(rate(side, lines))
    except BadInput as error:
        print(f"prepare.py: {error}", file=sys.stderr)
        return 2
    print(describe_whole(options.vocabulary, wholes))
    print(describe_ids(options, rates, equal(sides, lines)))
    return 0


def make_sides(path: Path, lowercase: bool) -> dict[str, Side]:
    """{name: what makes ids of lines, special pieces aside}; ours first."""
    given = tokenizer.from_file(path, lowercase)

    def ours(lines):
        ids, ends = given.cached_encoder().encode(lines)  # a new table, which knows no word yet
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

    known = f"BertTokenizerLegacy of transformers {version('transformers')}, in Python"
    return sides | {name: Side(by_library(library)), known: Side(legacy, PYTHON_LINES)}


def by_library(model) -> Callable[[list[str]], list[list[int]]]:
    def encode(lines):
        return [made.ids for made in model.encode_batch_fast(lines, add_special_tokens=False)]

    return encode


def rate(side: Side, lines: list[str]) -> float:
    """Megabytes a second of processors."""
    lines = lines[:: side.every]
    began = time.process_time()
    side.encode(lines)
    seconds = time.process_time() - began
    return sum(len(line.encode()) for line in lines) / 1e6 / seconds


def equal(sides: dict[str, Side], lines: list[str]) -> dict[str, tuple[int, int]]:
    """{name of another: (lines whose ids are ours, lines)}."""
    found = {}
    for name, side in sides.items():
        if name != OURS:
            some = lines[:: side.every]
            pairs = zip(sides[OURS].encode(some), side.encode(some), strict=True)
            found[name] = sum(list(a) == list(b) for a, b in pairs), len(some)
    return found


def unpacked(file: Path, scratch: Path) -> Path:
    if file.suffix != ".xz":
        return file.absolute()
    text = scratch / file.stem
    with lzma.open(file) as packed, open(text, "wb") as plain:
        shutil.copyfileobj(packed, plain)
    return text


def prepare(place: Path, overrides: list[str]) -> Whole:
    place.mkdir()
    report = place / "report.json"
    command = [sys.executable, "-m", "bert_jax", "prepare", "--config", "bert_base"]
    used = timed.run(
        [*command, f"--config.store={place / 'store'}", f"--json={report}", *overrides]
    )
    made = json.loads(report.read_text())
    shutil.rmtree(place)
    megabytes = made["megabytes_per_second"] * made["seconds"]
    return Whole(megabytes, made["megabytes_per_second"], used)


def describe_whole(vocabulary: Path, wholes: list[Whole]) -> str:
    rates = ", ".join(f"{whole.rate:.1f}" for whole in wholes)
    processors = ", ".join(f"{whole.used.processors:.0f}" for whole in wholes)
    peak = max(whole.used.peak for whole in wholes)
    return (
        f"| prepare, {vocabulary.name}, {wholes[0].megabytes:.0f} MB of text to a store"
        f" | {TARGETS.get(vocabulary.suffix, '-')} | {rates} MB/s by the clock; {processors} s of processors;"
        f" peak of the largest process {peak / 1e6:.0f} MB | |"
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
        f"| the ids alone, {options.megabytes} MB of it, one thread, MB by a second of processors | -"
        f" | {mine:.2f} (median of {options.turns}) | {others} |"
    )


def read(path: str, megabytes: float) -> list[str]:
    lines, size = [], 0
    with (lzma.open if path.endswith(".xz") else open)(path, "rt", encoding="utf-8") as file:
        for line in filter(None, map(str.strip, file)):
            if not line.startswith("<"):
                lines.append(line)
                size += len(line.encode())
            if size > megabytes * 1e6:
                break
    return lines


if __name__ == "__main__":
    sys.exit(main())

"""Runs the benchmarks behind the tables of benchmarks/README.md, by name, and prints their targets.

    python benchmarks/tables.py                  # lists the names, the files each needs, and about how long it takes
    python benchmarks/tables.py NAME ... [--data DIR] [--dry-run]

A table is a list of commands. They run in the root of the repository, with the Python that runs this script; the first
one that fails ends the script with its exit code. If a file is missing, nothing runs, and the exit code is 2. The
commit, the date and the machine are printed before each table. Use an otherwise idle machine.
"""

import argparse
import os
import platform
import re
import shlex
import subprocess
import sys
import tempfile
import time
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]


class Table(NamedTuple):
    """A table of benchmarks/README.md."""

    about: str
    target: str  # of each row, separated by semicolons; -: none, or in the rows themselves
    minutes: float  # on two cores, about, without installation
    commands: tuple[str, ...]  # {data}: --data; {scratch}: a temporary directory


ENGLISH = "{data}/enwiki/enwiki-2014-part0.txt.xz"
SIMPLE = "{data}/simplewiki/simplewiki-2017.txt.xz"
CHINESE = "{data}/zhwiki/zhwiki-part0.txt.xz"
VOCABULARY = "{data}/vocab/bert_base_uncased_vocab.txt"
SIMPLE_STORE = (
    "bert-jax prepare --config bert_base --config.store=stores/simplewiki --config.tokenizer.size=16384"
    f" --config.corpus.source={SIMPLE} --config.corpus.format=wiki"
)
PYTEST = "python -m pytest -rpP"  # shows the names and the output of the tests that passed
BELOW = "0.4 nats below the entropy in 10 minutes"


def learnt(name: str, target: str) -> str:
    return f"python benchmarks/learnt.py --workdir runs/{name} --target '{target}'"


def demo_on(name: str, source: str, *keys: str) -> tuple[str, ...]:
    keys = f"corpus.source={source}", "corpus.format=wiki", f"store=stores/{name}", *keys
    keys = " ".join(f"--config.{key}" for key in keys)
    return (
        f"bert-jax prepare --config demo {keys}",
        f"bert-jax pretrain --config demo --workdir runs/{name} {keys}",
        f"bert-jax evaluate --workdir runs/{name}",
        learnt(name, BELOW),
    )


TABLES = {
    "demo": Table(
        "the demo in a fresh clone: seconds, held-out loss at [MASK] below the unigram entropy",
        "6 minutes without the installation; 2.0 nats in 5 minutes of training",
        7,
        ("bash launch/local.sh", learnt("demo", "2.0 nats below the entropy in 5 minutes")),
    ),
    "demo-simplewiki": Table(
        "the demo on Simple Wikipedia",
        BELOW,
        10,
        demo_on("demo_simplewiki", SIMPLE, "phases.main.steps=4500"),
    ),
    "demo-unigram": Table(
        "the demo on Simple Wikipedia, SentencePiece unigram vocabulary",
        BELOW,
        10,
        demo_on("demo_unigram", SIMPLE, "tokenizer.kind=unigram", "tokenizer.sample=20"),
    ),
    "demo-zhwiki": Table(
        "the demo on Chinese Wikipedia, published vocabulary",
        BELOW,
        15,
        demo_on(
            "demo_zhwiki",
            CHINESE,
            "phases.main.steps=4500",
            "tokenizer.path={data}/vocab/bert_base_chinese_vocab.txt",
        ),
    ),
    "prepare": Table(
        "prepare, 63 MB of text to a store, and tokenization compared with other libraries: WordPiece, SentencePiece",
        "5 MB/s; 15 MB/s",
        2,
        (
            f"python benchmarks/prepare.py {VOCABULARY} {ENGLISH}",
            f"python benchmarks/prepare.py {{data}}/vocab/albert_spiece_30k.model {ENGLISH}",
        ),
    ),
    "ids": Table(
        "token ids of 20,000 lines, and of exported tokenizers, compared with transformers and sentencepiece",
        "all equal",
        2,
        (
            f"{PYTEST} --full tests/tokenizers",
            f"{PYTEST} --full tests/convert/test_tokenizer_files.py",
        ),
    ),
    "stream": Table(
        "stream, 100 million random tokens, compared with the masking of transformers (extra `parity`): first batch,"
        " tokens per second, memory, the same batch after a resume",
        "-; 10 million; -; equal",
        3,
        ("python benchmarks/stream.py",),
    ),
    "stream-large": Table(
        "the same with 4 and 7 billion tokens, 14 GB",
        "2 minutes, cached 10 s; 10 million; 4 GB; equal",
        40,
        (
            "python benchmarks/stream.py --tokens 4e9",
            "python benchmarks/stream.py --tokens 7e9",
        ),
    ),
    "statistics": Table(
        "masks and pairs over a million rows",
        "shares within 0.2 %, chi-square not rejected",
        3,
        (f"{PYTEST} --full tests/data/test_statistics.py",),
    ),
    "step": Table(
        "step on the CPU, tokens per second, in turns with PyTorch (extra `parity`)",
        "-",
        8,
        (
            "python benchmarks/step.py",
            "python benchmarks/step.py --same-memory --shapes bert_base:8",
        ),
    ),
    "accelerator": Table(
        "step on the local GPU or TPU, rows per second: BERT-base and BERT-large at 128 and 512",
        "one H200: 6,370 and 1,480; 1,850 and 436",
        10,
        (
            "bert-jax benchmark --config bert_base --config.train.rows_per_device=64",
            "bert-jax benchmark --config bert_large --config.train.rows_per_device=32",
        ),
    ),
    "tpu": Table(
        "step on TPU v5e by the compiler's cycles, compared with a plain Flax Linen step (extra `plan`)",
        "-",
        75,
        ("python benchmarks/tpu.py",),
    ),
    "plan": Table(
        "plan of BERT-base on v5e:4x4, then again from the cache (extra `plan`)",
        "4 minutes per phase; 10 s",
        10,
        2
        * (
            "bert-jax plan --config bert_base --topology v5e:4x4 --price 1.2"
            " --config.compilation_cache={scratch}/programs",
        ),
    ),
    "parity": Table(
        "largest differences from transformers on PyTorch",
        "2e-5; losses 1e-6, gradients 1e-4; after 10 steps 1e-6; losses of 200 steps 1e-3; ids equal",
        3,
        ("bash launch/test.sh --full tests/test_golden.py tests/convert/test_parity.py -rP",),
    ),
    "exports": Table(
        "export then import, and import then export, in both formats",
        "bitwise",
        2,
        (
            f"{PYTEST} tests/commands/test_export.py tests/convert/test_tensorflow_checkpoint.py"
            " tests/commands/test_import_model.py",
        ),
    ),
    "finetune": Table(
        "first_real, exported and fine-tuned in transformers, compared with random weights (extra `parity`)",
        "SST-2 +2 points; STS-B Spearman +12",
        180,
        (
            f"bert-jax pretrain --config first_real --workdir runs/first_real"
            f" --config.corpus.source={ENGLISH},{SIMPLE}",
            "bert-jax export --model runs/first_real --output {scratch}/exported",
            "tar -xJf {data}/glue.tar.xz -C {scratch}",
            "tar -xJf {data}/wnut17.tar.xz -C {scratch}/glue",
            "python benchmarks/finetune_transformers.py --model {scratch}/exported --data {scratch}/glue",
        ),
    ),
    "mesh": Table(
        "the same numbers on any mesh, any number of processes and micro-batches",
        "1e-5 relative",
        10,
        (
            f"{PYTEST} --full tests/parallel/test_meshes.py tests/parallel/test_processes.py"
            " tests/test_micro_batches.py tests/models/test_remat.py",
        ),
    ),
    "packing": Table(
        "packed and padded rows, Simple Wikipedia, real tokens per second, at 512 and 128",
        "1.3 x, and the ratio of real tokens",
        6,
        (
            SIMPLE_STORE,
            "python benchmarks/packing.py --store stores/simplewiki",
            "python benchmarks/packing.py --store stores/simplewiki --length 128 --sequences 4",
        ),
    ),
    "start": Table(
        "start of a 2-process run to its first reported step, then of one process, then of BERT-base",
        "30 s; 20 s",
        8,
        (
            "bert-jax prepare --config demo",
            "python benchmarks/start.py",
            "python benchmarks/start.py --processes 1",
            "bert-jax prepare --config bert_base --config.store=stores/start",
            "python benchmarks/start.py --processes 1 --config bert_base --config.store=stores/start"
            " --config.phases.short.batch=8 --config.phases.long.batch=8",
        ),
    ),
    "faults": Table(
        "faults injected from outside; writes docs/faults.md",
        "all tries pass",
        180,
        ("bash launch/faults.sh",),
    ),
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="tables; without any, lists them")
    default = os.path.relpath(ROOT.parent / "shared" / "data")
    parser.add_argument("--data", type=Path, default=default, help="default: %(default)s")
    parser.add_argument("--dry-run", action="store_true", help="only print the commands")
    options = parser.parse_args(arguments)
    data = options.data.resolve()
    problems = [problem for name in options.names for problem in missing(name, data)]
    if problems:
        print(f"tables.py: {problems[0]}", file=sys.stderr)
        return 2
    for name in options.names:
        print(f"\n### {name}: {TABLES[name].about}\n\nTarget: {TABLES[name].target}.")
        if code := run(TABLES[name], data, options.dry_run):
            print(f"tables.py: {name}: exit code {code}", file=sys.stderr)
            return code
    if not options.names:
        print("\n".join(map(describe, TABLES)))
    return 0


def describe(name: str) -> str:
    files = ", ".join(needs(TABLES[name]))
    suffix = f"; needs {files} in --data" if files else ""
    return f"{name:16}{TABLES[name].about} (about {TABLES[name].minutes:g} min{suffix})"


def needs(table: Table) -> list[str]:
    """Returns the files in --data that a table needs."""
    files = re.findall(r"\{data\}/(\S+)", " ".join(table.commands))
    return list(dict.fromkeys(files))


def missing(name: str, data: Path) -> list[str]:
    """Returns a line for each reason why a table cannot be run."""
    if name not in TABLES:
        return [f"{name}: no such table; expected one of {', '.join(TABLES)}"]
    files = [file for file in needs(TABLES[name]) if not (data / file).exists()]
    return [f"{name}: {data / file} does not exist; set its directory by --data" for file in files]


def run(table: Table, data: Path, is_dry: bool) -> int:
    """Runs the commands of a table; returns the exit code of the first that fails, or 0."""
    if not is_dry:
        print(describe_machine(), flush=True)
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        directories = dict(data=shlex.quote(str(data)), scratch=scratch)
        for text in table.commands:
            command = text.format(**directories)
            print(f"\n+ {command}\n", flush=True)
            if is_dry:
                continue
            code = subprocess.run(shlex.split(command), cwd=ROOT, env=environment()).returncode
            if code:
                return code
    if not is_dry:
        print(f"\nTook {time.monotonic() - start:.0f} s, with existing stores reused.", flush=True)
    return 0


def environment() -> dict[str, str]:
    """Returns the environment variables with `python` and `bert-jax` of this Python first on PATH."""
    directory = Path(sys.executable).parent
    return os.environ | {"PATH": f"{directory}{os.pathsep}{os.environ['PATH']}"}


def describe_machine() -> str:
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    commit = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()
    processors = Path("/proc/cpuinfo")
    text = processors.read_text() if processors.is_file() else ""
    processor = re.search(r"model name\s*: (.*)", text)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    return (
        f"Commit {commit or 'unknown'}, {date.today()}, {os.cpu_count()} cores of"
        f" {processor[1] if processor else platform.processor()}, {memory:.0f} GB, load"
        f" {os.getloadavg()[0]:.1f}; Python {platform.python_version()}, jax {version('jax')}."
    )


if __name__ == "__main__":
    sys.exit(main())

"""verify of a store beside sha256sum of the same files, in turns.

    python benchmarks/verify.py --store DIR [--turns 3]

Both are whole processes, of which that of verify imports its libraries first. Prints a Markdown row.
"""

import shutil
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT))

from benchmarks import timed  # noqa: E402
from bert_jax.cli import Parser, positive  # noqa: E402
from bert_jax.data import store as stores  # noqa: E402
from bert_jax.errors import BadInput  # noqa: E402


def main(arguments: list[str] | None = None) -> int:
    parser = Parser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--turns", type=positive, default=3)
    try:
        options = parser.parse_args(arguments)
        if not shutil.which("sha256sum"):
            raise BadInput("sha256sum: not installed; it is one of GNU's coreutils")
        files = [options.store / name for name in stores.read_manifest(options.store)["files"]]
        ours = [sys.executable, "-m", "bert_jax", "verify", "--store", str(options.store)]
        commands = {"verify": ours, "sha256sum": ["sha256sum", *map(str, files)]}
        used = {name: [] for name in commands}
        for _ in range(options.turns):
            for name, command in commands.items():
                used[name].append(timed.run(command))
    except BadInput as error:
        print(f"verify.py: {error}", file=sys.stderr)
        return 2
    print(row(sum(file.stat().st_size for file in files), used))
    return 0


def row(size: int, used: dict[str, list[timed.Used]]) -> str:
    said = {}
    for name, turns in used.items():
        clock = statistics.median(turn.seconds for turn in turns)
        processors = statistics.median(turn.processors for turn in turns)
        said[name] = (
            f"{clock:.1f} s, {size / 1e6 / clock:.0f} MB/s; {processors:.1f} s of processors"
        )
    many = len(used["verify"])
    what = f"verify, {size / 1e6:.0f} MB, whole process, medians of {many} turns"
    return f"| {what} | - | {said['verify']} | {said['sha256sum']} (sha256sum) |"


if __name__ == "__main__":
    sys.exit(main())

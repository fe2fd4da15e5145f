"""Writes the tables of `bash launch/test.sh --full` and `bash launch/faults.sh`: docs/tests.md, a row for each folder
of tests, and docs/faults.md, a row for each fault."""

import re
import subprocess
import time
from collections import Counter, defaultdict

from kits.paths import ROOT

HEADS = {
    "tests.md": """# Results of the full test run

The table shows the last result of every test, including the everyday ones. It is written by `bash launch/test.sh
--full`, also for whole folders, for example `bash launch/test.sh --full tests/data`. A plus after a commit marks
uncommitted changes. Injected faults have their own table, [faults.md](faults.md).

""",
    "faults.md": """# Injected faults

Written by `bash launch/faults.sh`, not by hand. It injects faults from outside into runs of a small model (width 32,
two layers) on simulated CPU devices, in one process with eight devices or in two processes with one device each. At
the end it compares bitwise all parameters, the optimizer's state, and every line of metrics.jsonl except its times.
Rows named "malformed inputs" run a command on damaged or random inputs, twenty in each try: each input must be refused
in one line with exit code 2 and change no file, or give a correct result. A failed try is printed in full, with its
`--seed`. A plus after a commit marks uncommitted changes.

""",
}
COLUMNS = ("tests", "passed", "failed", "skipped", "seconds of tests", "commit", "date")


def name_of(file: str, test: str) -> str:
    """Returns the name of a test's row: its folder, or the fault or command in words; '' for no row."""
    path, _, name = test.partition("::test_")
    parts = path.split("/")
    folder = parts[1] if len(parts) > 2 else "(top level)"
    if file == "tests.md":
        return folder
    words = re.sub(r"\[\d+-?", ": ", name).replace("_", " ")  # without the index of the try
    return words.rstrip("]: ") if folder in ("faults", "fuzz") else ""


def update(file: str, stats: dict) -> None:
    """Replaces the rows of the tests that ran. stats: {outcome: [report]} of pytest's terminal reporter."""
    path, counts, seconds = ROOT / "docs" / file, defaultdict(Counter), Counter()
    for outcome in ("passed", "failed", "error", "skipped"):
        for report in stats.get(outcome, []):
            name = name_of(file, report.nodeid)
            counts[name][outcome] += 1
            seconds[name] += report.duration
    last = commit(), time.strftime("%Y-%m-%d", time.gmtime())
    old = [line for line in path.read_text().splitlines() if line.startswith("| ")][2:]
    rows = {line.split("|")[1].strip(): line for line in old}
    for name, count in counts.items():
        failed = count["failed"] + count["error"]
        cells = (count["passed"], failed, count["skipped"], round(seconds[name]), *last)
        rows[name] = row(name, *cells)
    rows.pop("", None)
    lines = [row(*COLUMNS), row(*["---"] * len(COLUMNS)), *(rows[name] for name in sorted(rows))]
    path.write_text(HEADS[file] + "\n".join(lines) + "\n")


def row(*cells) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def commit() -> str:
    """Returns the tested commit, with a plus if files outside docs/ have uncommitted changes."""
    git = ["git", "-C", str(ROOT)]
    name = subprocess.check_output([*git, "describe", "--always", "--exclude=*"], text=True)
    is_changed = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", ".", ":!docs"]).returncode
    return name.strip() + "+" * bool(is_changed)

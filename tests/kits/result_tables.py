"""Writes the tables of `bash launch/test.sh --full`: docs/tests.md, a row for each folder of tests, and with several
`--tries` docs/faults.md, a row for each fault."""

import re
import subprocess
import time
from collections import Counter, defaultdict

from kits.paths import ROOT


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
    """Replaces the rows of the tests that ran, below the text of the page. stats: {outcome: [report]} of pytest."""
    path = ROOT / "docs" / file
    counts = defaultdict(Counter)
    seconds = Counter()
    for outcome in ("passed", "failed", "error", "skipped"):
        for report in stats.get(outcome, []):
            name = name_of(file, report.nodeid)
            counts[name][outcome] += 1
            seconds[name] += report.duration
    last = commit(), time.strftime("%Y-%m-%d", time.gmtime())
    page = path.read_text().splitlines()
    text = [line for line in page if not line.startswith("| ")]
    rows = {line.split("|")[1].strip(): line for line in page if line.startswith("| ")}
    heads = [rows.pop(name) for name in ("tests", "---")]
    for name, count in counts.items():
        failed = count["failed"] + count["error"]
        cells = (count["passed"], failed, count["skipped"], round(seconds[name]), *last)
        rows[name] = f"| {' | '.join(map(str, (name, *cells)))} |"
    rows.pop("", None)
    path.write_text("\n".join([*text, *heads, *(rows[name] for name in sorted(rows))]) + "\n")


def commit() -> str:
    """Returns the tested commit, with a plus if files outside docs/ have uncommitted changes."""
    git = ["git", "-C", str(ROOT)]
    name = subprocess.check_output([*git, "describe", "--always", "--exclude=*"], text=True)
    is_changed = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", ".", ":!docs"]).returncode
    return name.strip() + "+" * bool(is_changed)

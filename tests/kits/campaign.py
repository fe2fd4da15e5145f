"""What `bash launch/test.sh --full` writes to docs/tests.md: a row for each folder of tests that it ran."""

import time
from collections import Counter
from pathlib import Path

HEAD = """# The campaign

What became of every test, those of the everyday suite included, when it ran last: by `bash launch/test.sh --full`,
or by whole folders, as `bash launch/test.sh --full tests/data`. A plus behind a commit: files of it were changed.
The campaign of faults has a table of its own, [faults.md](faults.md).

"""
COLUMNS = ("folder", "passed", "failed", "skipped", "seconds of tests", "commit", "date")


def write(path: Path, stats: dict) -> None:
    """stats: of pytest's terminal reporter, {outcome: [report]}."""
    from faults.table import commit, line

    counts, seconds = {}, Counter()
    for outcome in ("passed", "failed", "error", "skipped"):
        for report in stats.get(outcome, []):
            parts = report.nodeid.partition("::")[0].split("/")
            folder = parts[1] if len(parts) > 2 else "(top level)"
            counts.setdefault(folder, Counter())[outcome] += 1
            seconds[folder] += report.duration
    rows = read(path)
    day, name = time.strftime("%Y-%m-%d", time.gmtime()), commit(path)
    for folder, count in counts.items():
        failed = count["failed"] + count["error"]
        cells = (count["passed"], failed, count["skipped"], round(seconds[folder]), name, day)
        rows[folder] = line([folder, *cells])
    lines = [line(COLUMNS), line(["---"] * len(COLUMNS)), *(rows[name] for name in sorted(rows))]
    path.write_text(HEAD + "\n".join(lines) + "\n")


def read(path: Path) -> dict[str, str]:
    """{folder: row} of what was written before."""
    lines = path.read_text().splitlines() if path.is_file() else []
    rows = [line for line in lines if line.startswith("| ")][1:]
    return {line.split("|")[1].strip(): line for line in rows if not line.startswith("| ---")}

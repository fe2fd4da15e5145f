#!/usr/bin/env bash
# Makes .venv, installs the test extra, and tries the faults of docs/faults.md. Arguments go to it.
set -euo pipefail

dry_run=
if [ "${1:-}" = --dry-run ]; then
  dry_run=yes
  shift
fi
case "${1:-}" in
  -h | --help)
    cat <<'HELP'
usage: bash launch/faults.sh [--dry-run] [--tries N] [--seed N] [-k NAMES]

Makes .venv, installs bert_jax with the test extra where that has changed, and injects faults from outside into
small runs: kills, damaged checkpoints, a full disk, signals, stuck processes, numbers that are not finite, workdirs in
a bucket, malformed inputs. A table of what became of them is written to docs/faults.md, where there is more than one
try. The whole takes about an hour and a half on two cores. The exit code is 1 where a try has failed.

  --tries N    of each fault; 10 by default
  --seed N     of all that is drawn; a fresh one by default, told where a try fails
  -k NAMES     some faults, as -k "killed or full_disk"; the other rows of the table stay as they are
Other arguments are pytest's, which runs them.
--dry-run prints the commands, and runs none.
Paths are relative to the root of the repository. PYTHON names the Python that .venv is made with.
HELP
    exit
    ;;
esac

cd "$(dirname "${BASH_SOURCE[0]}")/.."
source launch/commands.sh
dry=$dry_run
prepare test
execute python -m pytest --full --numprocesses 0 --tries 10 tests/faults tests/fuzz "$@"

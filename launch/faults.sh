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
usage: bash launch/faults.sh [--dry-run] [--short] [--seed N] [--only NAME ...] [--try N] [--output FILE]

Makes .venv, installs bert_jax with the test extra where that has changed, and injects faults from outside into
small runs: kills, damaged checkpoints, a full disk, signals, stuck processes, numbers that are not finite, malformed
inputs. Each try is told; a table of all is written to FILE as it grows (docs/faults.md, with --short nothing). The
whole takes about 40 minutes on two cores. The exit code is 1 where a try has failed.

  --short            one to three tries of each fault
  --seed N           of all that is drawn; a fresh one by default, printed and written into the table
  --only NAME ...    some faults; the other rows of FILE stay as they are
  --try N            this try alone of one fault, as it was told when it failed
  --output FILE      relative to the root of the repository
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
execute env PYTHONPATH=tests python -m faults "$@"

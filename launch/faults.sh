#!/usr/bin/env bash
# usage: bash launch/faults.sh [--tries N] [--seed N] [-k NAMES]
#
# Makes .venv, installs bert_jax with the test extra where that has changed, and injects faults from outside into
# small runs: kills, damaged checkpoints, a full disk, signals, stuck processes, numbers that are not finite, workdirs
# in a bucket, malformed inputs. A table of what became of them is written to docs/faults.md, where there is more than one
# try. The whole takes about an hour and a half on two cores. The exit code is 1 where a try has failed.
#
#   --tries N    of each fault; 10 by default
#   --seed N     of all that is drawn; a fresh one by default, told where a try fails
#   -k NAMES     some faults, as -k "killed or full_disk"; the other rows of the table stay as they are
# Other arguments are pytest's, which runs them. Paths are relative to the root of the repository.

set -euo pipefail

case " $* " in *' -h '* | *' --help '*) sed -n '2,/^$/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit ;; esac
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source launch/environment.sh
environment test
exec python -m pytest --full --numprocesses 0 --tries 10 tests/faults tests/fuzz "$@"

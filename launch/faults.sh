#!/usr/bin/env bash
# usage: bash launch/faults.sh [--tries N] [--seed N] [-k NAMES]
#
# Creates .venv, installs bert_jax with the test extra if setup.cfg has changed, and injects faults from outside into
# small runs: kills, damaged checkpoints, a full disk, signals, hung processes, values that are not finite, workdirs in
# a bucket, malformed inputs. Writes the results to docs/faults.md, if there is more than one try. It takes about three
# hours on two cores, which should have nothing else to do. The exit code is 1 if a try has failed.
#
#   --tries N    tries of each fault; default 10
#   --seed N     seed of all random choices; default: a new one, printed if a try fails
#   -k NAMES     selects faults, such as -k "killed or full_disk"; the other rows of the table stay
# Other arguments are passed to pytest. Paths are relative to the root of the repository.

set -euo pipefail

case " $* " in *' -h '* | *' --help '*) sed -n '2,/^$/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit ;; esac
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source launch/environment.sh
environment test
exec python -m pytest --full --numprocesses 0 --tries 10 tests/faults tests/fuzz "$@"

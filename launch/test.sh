#!/usr/bin/env bash
# usage: bash launch/test.sh [--full] [PYTEST ARGUMENTS]
#
# Creates .venv, installs bert_jax with the test extra if setup.cfg has changed, and runs the everyday tests.
#   bash launch/test.sh -m "not slow"             skips the tests that take more than a second
#   bash launch/test.sh tests/test_layout.py -x   one file, until the first failure
#   bash launch/test.sh --numprocesses 0          in one process instead of two
#   bash launch/test.sh --full                    all tests: takes an hour or more, installs PyTorch, writes docs/tests.md
# Paths are relative to the root of the repository. PYTHON names the Python of .venv.

set -euo pipefail

extras='test'
case " $* " in
  *' -h '* | *' --help '*) sed -n '2,/^$/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit ;;
  *' --full '*) extras='test,parity,plan-gpu' ;;
esac
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source launch/environment.sh
environment "$extras"
# Two files at a time, the slowest first.
exec python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder "$@"

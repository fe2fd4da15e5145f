#!/usr/bin/env bash
# Makes .venv, installs the test extra, and runs the tests. Arguments go to pytest.
set -euo pipefail

with="test" dry_run=
if [ "${1:-}" = --dry-run ]; then
  dry_run=yes
  shift
fi
case "${1:-}" in
  -h | --help)
    cat <<'EOF'
usage: bash launch/test.sh [--dry-run] [--full] [PYTEST ARGUMENTS]

Makes .venv, installs bert_jax with the test extra where that has changed, and runs the everyday tests.
  bash launch/test.sh -m "not slow"             leaves out the tests that take more than two seconds
  bash launch/test.sh tests/test_layout.py -x   one file, until the first failure
  bash launch/test.sh --numprocesses 0          one file at a time instead of two
  bash launch/test.sh --full                    the campaign too, hours: installs PyTorch (large), writes docs/tests.md
--dry-run prints the commands, and runs none.
Paths are relative to the root of the repository. PYTHON names the Python that .venv is made with.
EOF
    exit
    ;;
esac
case " $* " in *" --full "*) with="test,parity" ;; esac

cd "$(dirname "${BASH_SOURCE[0]}")/.."
source launch/commands.sh
dry=$dry_run
prepare "$with"
# Two files at a time, the slowest first.
execute python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder "$@"

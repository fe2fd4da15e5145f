#!/usr/bin/env bash
# Makes .venv, installs the test extra, and runs every test. Arguments go to pytest.
set -euo pipefail

with="test" dry_run=
while true; do
  case "${1:-}" in
    --parity) with="test,parity" ;;
    --dry-run) dry_run=yes ;;
    *) break ;;
  esac
  shift
done
case "${1:-}" in
  -h | --help)
    cat <<'EOF'
usage: bash launch/test.sh [--parity] [--dry-run] [PYTEST ARGUMENTS]

Makes .venv, installs bert_jax with the test extra where that has changed, and runs every test.
  bash launch/test.sh -m "not slow"             leaves out the tests that take more than ten seconds
  bash launch/test.sh tests/test_layout.py -x   one file, until the first failure
  bash launch/test.sh --numprocesses 0          one file at a time instead of two
  bash launch/test.sh --parity                  installs PyTorch too (large), and runs what compares with it;
                                                without it these tests are skipped
--dry-run prints the commands, and runs none.
Paths are relative to the root of the repository. PYTHON names the Python that .venv is made with.
EOF
    exit
    ;;
esac

cd "$(dirname "${BASH_SOURCE[0]}")/.."
source launch/commands.sh
dry=$dry_run
prepare "$with"
# Two files at a time, in the order of their names.
execute python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder "$@"

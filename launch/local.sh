#!/usr/bin/env bash
# usage: bash launch/local.sh [CONFIG [WORKDIR]]
#
# Creates .venv, installs bert_jax if setup.cfg has changed, then pretrains, which prepares the text first, and evaluates.
# The demo fills in masks, too.
#
# CONFIG   a name from configs/, or a Python file; default: demo
# WORKDIR  a directory; default: runs/CONFIG in the repository
# Both are relative to the current directory; paths in a config are relative to the root of the repository.
#
# launch/again.sh restarts pretraining if it is killed. The same command resumes a run that was stopped; a finished run is
# only evaluated again. PYTHON=... names the Python of .venv. The exit code is that of the first command that fails.

set -euo pipefail

case "${1:-}" in
  -h | --help) sed -n '2,/^$/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit ;;
  -*) echo "local.sh: $1: unknown argument (--help)" >&2; exit 2 ;;
esac

here() { # PATH: prints it as an absolute path
  case "$1" in /*) echo "$1" ;; *) echo "$PWD/$1" ;; esac
}

config=${1:-demo}
workdir=runs/$(basename "$config" .py)
[ $# -lt 2 ] || workdir=$(here "$2")
case "$config" in *.py) config=$(here "$config") ;; esac

cd "$(dirname "${BASH_SOURCE[0]}")/.."
[ "$config" != demo ] || echo "On two cores, after the installation: prepare the text (10 seconds), compile (10 seconds)," \
  "train (100 seconds, with a progress bar), evaluate and fill in masks (10 seconds)."
source launch/environment.sh
environment
set -x # print the commands
bash launch/again.sh bert-jax pretrain --config "$config" --workdir "$workdir"
bert-jax evaluate --model "$workdir"
# The sentences are similar to the demo's text, the documentation of Python.
[ "$config" != demo ] || bert-jax predict --model "$workdir" \
  "If the file does not [MASK], an error is raised." \
  "Return [MASK] if the string is empty, False otherwise." \
  "Returns: A list of [MASK]."

#!/usr/bin/env bash
# usage: bash launch/local.sh [CONFIG [WORKDIR]]
#
# Makes .venv, installs bert_jax where setup.cfg has changed, then prepares, pretrains, evaluates and fills in masks.
#
# CONFIG   a name from configs/, or a Python file; demo where it is left out
# WORKDIR  a directory; runs/CONFIG in the repository where it is left out
# Both are relative to where you are, paths in a config to the root of the repository.
#
# Pretraining that is killed is started again, as by launch/again.sh. Run it again to go on where it stopped; a finished
# run is only evaluated again. PYTHON=... names the Python that .venv is made with. The exit code is that of the first
# command that fails.

set -euo pipefail

case "${1:-}" in
  -h | --help) sed -n '2,/^$/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit ;;
  -*) echo "local.sh: $1: not known here (--help)" >&2; exit 2 ;;
esac

here() { # PATH: from the root, where the rest runs
  case "$1" in /*) echo "$1" ;; *) echo "$PWD/$1" ;; esac
}

config=${1:-demo}
workdir=runs/$(basename "$config" .py)
[ $# -lt 2 ] || workdir=$(here "$2")
case "$config" in *.py) config=$(here "$config") ;; esac

cd "$(dirname "${BASH_SOURCE[0]}")/.."
source launch/environment.sh
environment
set -x # shows the commands
bert-jax prepare --config "$config"
eval "$(bert-jax env)" # memory settings of the C library, of which preparing needs others
bash launch/again.sh bert-jax pretrain --config "$config" --workdir "$workdir"
bert-jax evaluate --workdir "$workdir"
# The built-in corpus is the documentation of Python, so these are sentences of its kind.
bert-jax predict --model "$workdir" \
  "Return a new [MASK] with the given name." \
  "If the file does not [MASK], an error is raised." \
  "Return [MASK] if the string is empty, False otherwise." \
  "A [MASK] of the same shape and type as x." \
  "Returns: A list of [MASK]."

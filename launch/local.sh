#!/usr/bin/env bash
# One config on this machine: makes .venv, installs, prepares, pretrains, evaluates, fills in masks.
set -euo pipefail

usage() {
  cat <<'EOF'
usage: bash launch/local.sh [--dry-run] [CONFIG [WORKDIR]]

Makes .venv, installs bert_jax where setup.cfg has changed, then runs
  bert-jax prepare  --config CONFIG
  bert-jax pretrain --config CONFIG --workdir WORKDIR
  bert-jax evaluate --workdir WORKDIR
  bert-jax predict  --model WORKDIR "... [MASK] ..."

CONFIG   a name from configs/, or a Python file; demo where it is left out
WORKDIR  a directory; runs/CONFIG in the repository where it is left out
Both are relative to where you are, paths in a config to the root of the repository.

Pretraining that is killed is started again, as by launch/again.sh.
Run it again to go on where it stopped; a finished run is only evaluated again.
PYTHON=... names the Python that .venv is made with. --dry-run prints the commands, and runs none.
The exit code is that of the first command that fails.
EOF
}

dry_run=
if [ "${1:-}" = --dry-run ]; then
  dry_run=yes
  shift
fi
case "${1:-}" in
  -h | --help) usage; exit ;;
  -*) usage >&2; exit 2 ;;
esac
if [ $# -gt 2 ]; then usage >&2; exit 2; fi

here() { # a path from where the user is, since the rest runs in the root
  case "$1" in /*) echo "$1" ;; *) echo "$PWD/$1" ;; esac
}

config=${1:-demo}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
name=$(basename "$config" .py)
workdir=$(if [ $# -eq 2 ]; then here "$2"; else echo "$root/runs/$name"; fi)
case "$config" in *.py) config=$(here "$config") ;; esac

cd "$root"
source launch/commands.sh
dry=$dry_run
prepare ''

bert_jax() { # HOW ARGUMENT...: how is run, or again
  local how=$1
  shift
  if [ -n "$dry" ]; then
    call bert-jax "$@"
    return
  fi
  echo "+ $(quoted bert-jax "$@")"
  "$how" bert-jax "$@"
}

bert_jax run prepare --config "$config"
[ -n "$dry" ] || eval "$(bert-jax env)" # memory settings of the C library
bert_jax again pretrain --config "$config" --workdir "$workdir"
bert_jax run evaluate --workdir "$workdir"
# The built-in corpus is the documentation of Python, so these are sentences of its kind.
bert_jax run predict --model "$workdir" \
  "Return a new [MASK] with the given name." \
  "If the file does not [MASK], an error is raised." \
  "Return [MASK] if the string is empty, False otherwise." \
  "A [MASK] of the same shape and type as x." \
  "Returns: A list of [MASK]."

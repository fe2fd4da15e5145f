#!/usr/bin/env bash
# Starts a command again where it was preempted or killed, and not where it has failed.
set -uo pipefail

usage() {
  cat <<'HELP'
usage: bash launch/again.sh [--dry-run] COMMAND [ARGUMENT ...]

Runs COMMAND, such as bert-jax pretrain --config CONFIG --workdir WORKDIR, and starts it again where it ends with
  75        preempted after saving
  76        another process of the run, or a device, was lost or has not come; another trains in the workdir
  over 128  killed, as by the system (137), at a deadline (142), terminated in its first seconds (143), or aborted (134)
but not with 129, 130 or 131: its user has ended it. With any other code this script ends, too: 0 is done, 1 failed,
2 bad input. On every host of a run, each starts its own process again.

AGAIN_WAIT   seconds before it is started again, a whole number; 5 where it is not set. They double every time, up to
             300, until there is a new checkpoint in WORKDIR
             (`bert-jax status` is asked for that of an address, such as gs://...)
AGAIN_TIMES  times that it is started again without a new checkpoint in WORKDIR, at most; 5 where it is not set
--dry-run prints COMMAND, and does not run it.
SIGTERM is passed on to COMMAND. After it, or after Ctrl-C, nothing is started again, and the exit code is COMMAND's.
HELP
}

# shellcheck source=launch/commands.sh
source "$(dirname "${BASH_SOURCE[0]}")/commands.sh"
if [ "${1:-}" = --dry-run ]; then
  dry=yes
  shift
fi
case "${1:-}" in
  -h | --help) usage; exit ;;
  '' | -*) usage >&2; exit 2 ;;
esac

if [ -n "$dry" ]; then
  call "$@"
else
  again "$@"
fi

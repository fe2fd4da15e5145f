#!/usr/bin/env bash
# usage: bash launch/again.sh COMMAND [ARGUMENT ...]
#
# Runs COMMAND, such as bert-jax pretrain --config CONFIG --workdir WORKDIR, and starts it again where it ends with
#   75        preempted after saving
#   76        another process of the run, or a device, was lost or has not come; another trains in the workdir
#   over 128  killed, as by the system (137), at a deadline (142), in its first seconds (143), or aborted (134)
# but not with 129, 130 or 131: its user has ended it. With any other code this script ends, too: 0 is done, 1 failed,
# 2 bad input. On every host of a run, each starts its own process again.
#
# AGAIN_WAIT   seconds before the next start; 5 where it is not set. They double every time, up to 300, until
#              `bert-jax status` tells of a new checkpoint in WORKDIR, a directory or an address
# AGAIN_TIMES  starts after the first without a new checkpoint, at most; 5 where it is not set
# SIGTERM is passed on to COMMAND. After it, or after Ctrl-C, nothing is started again. The exit code is COMMAND's.

set -uo pipefail

case "${1:-}" in
  -h | --help) sed -n '2,/^$/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit ;;
  '' | -*) echo "again.sh: expected a command (--help)" >&2; exit 2 ;;
esac

child=     # the process that is running
told=      # was this script told to end?
signalled= # has a signal come while it waited?

trap 'told=yes signalled=yes; tell' TERM
trap 'told=yes signalled=yes' INT # a terminal interrupts the command, too: twice would end it unsaved

tell() {
  [ -z "$child" ] || kill -TERM "$child" 2>/dev/null || true
}

# A shell hears of SIGTERM only when its command in the foreground has ended. So the command runs beside it.
run() { # COMMAND ...
  local code
  (trap - INT TERM; exec "$@") <&0 &
  child=$!
  [ -z "$told" ] || tell
  while true; do
    signalled=''
    code=0
    wait "$child" || code=$?
    # A signal ends the wait, not the command: wait again, for the command's own exit code.
    [ -n "$signalled" ] || break
  done
  child=
  return "$code"
}

was_stopped() { # CODE: was the command ended by somebody other than itself and its user?
  case "$1" in
    75 | 76) ;;
    129 | 130 | 131) return 1 ;;
    *) [ "$1" -gt 128 ] && [ "$1" -le 192 ] ;; # by the signal of this number less 128
  esac
}

workdir() { # COMMAND ...: what follows --workdir
  while [ $# -gt 0 ]; do
    case "$1" in
      --workdir) echo "${2:-}"; return ;;
      --workdir=*) echo "${1#*=}"; return ;;
    esac
    shift
  done
}

newest() { # COMMAND ...: the step of the newest checkpoint, or -1
  local step
  step=$(bert-jax status --workdir "$(workdir "$@")" --json - 2>/dev/null </dev/null |
    sed -n 's/.*"last_checkpoint": *\([0-9][0-9]*\).*/\1/p')
  echo "${step:--1}"
}

pause=${AGAIN_WAIT:-5} fruitless=0 before=-1
while true; do
  code=0
  run "$@" || code=$?
  if [ -n "$told" ] || ! was_stopped "$code"; then exit "$code"; fi
  after=$(newest "$@")
  [ "$after" -le "$before" ] || pause=${AGAIN_WAIT:-5} fruitless=0
  before=$after # which is less after a damaged one was passed over
  fruitless=$((fruitless + 1))
  if [ "$fruitless" -gt "${AGAIN_TIMES:-5}" ]; then
    echo "exit code $code; given up: no new checkpoint in $fruitless starts" >&2
    exit "$code"
  fi
  echo "exit code $code; starting again in $pause seconds" >&2
  run sleep "$pause" || true
  [ -z "$told" ] || exit "$code"
  pause=$((pause * 2 < 300 ? pause * 2 : 300))
done

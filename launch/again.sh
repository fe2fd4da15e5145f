#!/usr/bin/env bash
# usage: bash launch/again.sh COMMAND [ARGUMENT ...]
#
# Runs COMMAND, such as bert-jax pretrain --config CONFIG --workdir WORKDIR, and restarts it if it ends with
#   75        preempted, after saving or before the first step
#   76        another process of the run, or a device, was lost or did not connect; a bucket was unreachable; or another
#             process trains in the workdir
#   over 128  killed by the system (137), hung (142), terminated before it could save (143), or aborted by JAX (134)
# but not with 129, 130 or 131: a user has ended it. With any other code this script ends too: 0 is done, 1 failed,
# 2 bad input. A run on several hosts needs one again.sh on each host.
#
# AGAIN_WAIT   seconds before a restart, default 5. They double each time, up to 300, until `bert-jax status` reports a
#              new checkpoint in WORKDIR, a directory or an address
# AGAIN_TIMES  restarts without a new checkpoint, at most; default 5
# SIGTERM is passed on to COMMAND. After it, or after Ctrl-C, there is no restart. The exit code is that of COMMAND.

set -uo pipefail

case "${1:-}" in
  -h | --help) sed -n '2,/^$/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit ;;
  '' | -*) echo "again.sh: expected a command (--help)" >&2; exit 2 ;;
esac

child=     # the process that is running
stopping=  # whether this script was signalled to end
signalled= # whether a signal arrived during the wait

trap 'stopping=yes signalled=yes; [ -z "$child" ] || kill -TERM "$child" 2>/dev/null' TERM
trap 'stopping=yes signalled=yes' INT # the terminal signals the command, too; a second signal would end it unsaved

# A shell handles SIGTERM only after its foreground command has ended, so the command runs in the background.
run() { # COMMAND ...
  local code
  (trap - INT TERM; exec "$@") <&0 &
  child=$!
  [ -z "$stopping" ] || kill -TERM "$child" 2>/dev/null
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

was_stopped() { # CODE: returns whether a restart may go on: the user did not end it, nor an error of the command
  case "$1" in
    75 | 76) ;;
    129 | 130 | 131) return 1 ;;
    *) [ "$1" -gt 128 ] && [ "$1" -le 192 ] ;; # by the signal of this number less 128
  esac
}

newest() { # COMMAND ...: prints the step of the newest checkpoint in the last --workdir, or -1
  local step workdir
  workdir=$(printf '%s\n' "$@" | sed -n -e '/^--workdir$/{n;p;}' -e 's/^--workdir=//p' | tail -n 1)
  step=$(bert-jax status --workdir "$workdir" --json - 2>/dev/null </dev/null |
    sed -n 's/.*"last_checkpoint": *\([0-9][0-9]*\).*/\1/p')
  echo "${step:--1}"
}

pause=${AGAIN_WAIT:-5} fruitless=0 before=-1
while true; do
  code=0
  run "$@" || code=$?
  if [ -n "$stopping" ] || ! was_stopped "$code"; then exit "$code"; fi
  after=$(newest "$@")
  [ "$after" -le "$before" ] || pause=${AGAIN_WAIT:-5} fruitless=0
  before=$after # less than before if a damaged checkpoint was skipped
  if [ $((fruitless += 1)) -gt "${AGAIN_TIMES:-5}" ]; then
    echo "exit code $code; giving up: no new checkpoint in $fruitless starts" >&2
    exit "$code"
  fi
  echo "exit code $code; restarting in $pause seconds" >&2
  run sleep "$pause" || true
  [ -z "$stopping" ] || exit "$code"
  pause=$((pause * 2 < 300 ? pause * 2 : 300))
done

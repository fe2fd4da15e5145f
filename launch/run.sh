# shellcheck shell=bash
# Sourced by the other scripts: `run COMMAND...` runs a command that hears of signals, `again COMMAND...` starts it
# again where it was stopped.

child= # the process that is told of SIGTERM
told=  # has this script been told to end?

# A shell that waits for a command in the foreground hears of SIGTERM only when that has ended, and
# then dies without its exit code. So the command runs beside it, and is told.
run() {
  local code
  (trap - INT TERM; exec "$@") <&0 &
  child=$!
  while true; do
    signalled=
    code=0
    wait "$child" || code=$?
    # A signal ends the wait, not the command: wait again, for the command's own exit code.
    [ -n "$signalled" ] || break
  done
  child=
  return "$code"
}

tell() { # CODE: of this script, where no command is running
  signalled=yes
  told=yes
  [ -n "$child" ] || exit "$1"
  kill -TERM "$child" 2>/dev/null || exit "$1"
}

interrupted() { # a terminal interrupts the command, too, and a second time would be once too often
  if [ -t 0 ] && [ -n "$child" ]; then
    signalled=yes
    told=yes
  else
    tell 130
  fi
}

trap 'tell 143' TERM
trap interrupted INT

stopped() { # CODE: did somebody end the command that had not been told by its user?
  case "$1" in
    75 | 76) ;; # preempted after saving; another process of the run was lost
    129 | 130 | 131) return 1 ;;
    *) [ "$1" -gt 128 ] && [ "$1" -le 192 ] ;; # killed by the signal of this number less 128
  esac
}

newest() { # COMMAND...: the newest checkpoint in the directory or at the address that follows --workdir, or -1
  local word before='' directory='' path name step=-1
  for word; do
    [ "$before" != --workdir ] || directory=$word
    case "$word" in --workdir=*) directory=${word#*=} ;; esac
    before=$word
  done
  case "$directory" in
    *://*)
      name=$(bert-jax status --workdir "$directory" --json - 2>/dev/null </dev/null |
        sed -n 's/.*"last_checkpoint": *\([0-9][0-9]*\).*/\1/p') || true
      echo "${name:--1}"
      return
      ;;
  esac
  for path in ${directory:+"$directory"/checkpoints/*}; do
    name=${path##*/}
    case "$name" in *[!0-9]* | ???????????????????*) continue ;; esac # 19 digits are no step
    [ "$name" -le "$step" ] || step=$name
  done
  echo "$step"
}

# AGAIN_WAIT: seconds before the first start, which double to five minutes while there is no progress.
# AGAIN_TIMES: starts in a row without a new checkpoint, at most.
again() {
  local code before after pause=${AGAIN_WAIT:-5} fruitless=0
  before=$(newest "$@")
  while true; do
    code=0
    run "$@" || code=$?
    if [ -n "$told" ] || ! stopped "$code"; then return "$code"; fi
    after=$(newest "$@")
    if [ "$after" -gt "$before" ]; then
      fruitless=0 pause=${AGAIN_WAIT:-5}
    fi
    before=$after # which is less after a damaged one was passed over
    fruitless=$((fruitless + 1))
    if [ "$fruitless" -gt "${AGAIN_TIMES:-5}" ]; then
      echo "exit code $code; given up: no new checkpoint in $fruitless starts" >&2
      return "$code"
    fi
    echo "exit code $code; starting again in $pause seconds" >&2
    run sleep "$pause" || true
    [ -z "$told" ] || return "$code"
    pause=$((pause * 2 < 300 ? pause * 2 : 300))
  done
}

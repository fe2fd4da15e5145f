#!/usr/bin/env bash
# What launch/tpu.sh runs on every worker of a slice: install, start, state, stop, log.
set -euo pipefail

usage() {
  cat <<'HELP'
usage: bash launch/worker.sh install [WHEEL]               Python where it lacks, .venv, the extras tpu and gcs
       bash launch/worker.sh start LOGS COMMAND ...        bert-jax COMMAND ..., detached; its log is copied to LOGS if any
       bash launch/worker.sh state                         a line: new, running, stopped, or ended and the exit code
       bash launch/worker.sh stop                          has it save and end, and waits for that
       bash launch/worker.sh log [TAIL ARGUMENTS]          the end of its log

launch/tpu.sh calls this by ssh on every worker of a slice; the log and what else it keeps lie in ~/bert_jax_run.
HELP
}

case "${1:-}" in
  -h | --help) usage; exit ;;
  install | start | train | state | stop | log) ;;
  *) usage >&2; exit 2 ;;
esac

cd "$(dirname "${BASH_SOURCE[0]}")/.."
kept=$HOME/bert_jax_run # pid, lock, log, code

install() { # [WHEEL]
  source launch/environment.sh
  if ! fits_already && ! is_python_there; then
    newer_python
  fi
  environment tpu,gcs "${1:-}"
}

is_python_there() { # one that is new enough, and has what Debian and Ubuntu package apart
  local python
  python=$(find_python 2>/dev/null) && "$python" -c 'import ensurepip, venv' 2>/dev/null
}

# TPU images carry Python 3.10. uv brings another as a plain directory, from PyPI and GitHub: it needs no root, no
# package sources beside Ubuntu's own, and does not wait for apt, which upgrades itself just after a machine's start.
newer_python() {
  local uv=$HOME/.bert_jax_uv
  echo "no Python 3.11 or newer: installing 3.12 with uv"
  python3 -m pip install --quiet --disable-pip-version-check --upgrade --target "$uv" --constraint constraints.txt uv
  "$uv/bin/uv" python install 3.12
  PYTHON=$("$uv/bin/uv" python find --managed-python 3.12)
}

start() { # LOGS COMMAND...
  mkdir -p "$kept"
  # Held by all that is started, so that it tells whether any of that is still there.
  exec 9>"$kept/lock"
  if ! flock --nonblock 9; then
    echo "running already"
    return
  fi
  rm -f "$kept/code" "$kept/stopped"
  setsid bash launch/worker.sh train "$@" </dev/null >>"$kept/log" 2>&1 &
  echo $! >"$kept/pid"
}

train() { # LOGS COMMAND...
  local logs=$1 code=0 copier=
  shift
  PATH=$PWD/.venv/bin:$PATH
  source launch/flags.sh
  tpu_flags
  source launch/run.sh
  if [ -n "$logs" ]; then
    while sleep 60; do copy_log "$logs"; done 9>&- &
    copier=$!
  fi
  again bert-jax "$@" || code=$?
  echo "$code" >"$kept/code"
  if [ -n "$logs" ]; then
    kill "$copier"
    copy_log "$logs"
  fi
}

copy_log() { # DIRECTORY: in a bucket; a worker of the next slice has another name
  timeout 120 gcloud storage cp --quiet "$kept/log" "$1/$(hostname).log" >/dev/null 2>&1 || true
}

state() {
  local found
  if [ ! -e "$kept/pid" ]; then
    found=new
  elif ! flock --nonblock "$kept/lock" true; then
    found=running
  elif [ -e "$kept/stopped" ]; then
    found=stopped
  else # killed with all that belongs to it, where it could not say how it ended
    found="ended $(cat "$kept/code" 2>/dev/null || echo 137)"
  fi
  echo "worker $(hostname): $found"
}

stop() {
  [ "$(state)" = "worker $(hostname): running" ] || { state; return; }
  touch "$kept/stopped"
  kill -TERM "$(cat "$kept/pid")"
  flock --timeout 900 "$kept/lock" true || echo "has not ended in 15 minutes"
  state
}

log() {
  tail "$@" "$kept/log"
}

"$@"

#!/usr/bin/env bash
# usage: bash launch/tpu.sh --name NAME --type TYPE --zone ZONE [OPTION ...] -- pretrain --config C --workdir gs://B/RUN
#        bash launch/tpu.sh status|stop|delete --name NAME --zone ZONE [--project PROJECT]
#
# Creates a Cloud TPU slice, copies this checkout to all of its workers, installs it there, and starts bert-jax with the
# arguments after -- (pretrain, finetune or benchmark) on all of them, detached, through launch/again.sh. An existing
# slice of that name is used as it is. The script ends once the run has started. It does not replace a preempted slice;
# launch/skypilot.yaml does.
#
#   --name NAME        name of the slice
#   --type TYPE        such as v5litepod-16, v6e-8, v5p-8, v4-32
#   --zone ZONE        such as us-west4-a
#   --project PROJECT  default: the project in gcloud's configuration
#   --version RUNTIME  image of the machines; default: the image for TYPE
#   --OPTION[=VALUE]   any other option is passed to `gcloud compute tpus tpu-vm create`: --spot, --service-account=ACCOUNT
#   --dry-run          checks the command, prints the calls of gcloud and runs none
#
#   status   prints the state of the slice, and for each worker whether a run is active and the end of bert_jax.log
#   stop     saves and ends the run, or ends its installation; the slice stays and costs money
#   delete   deletes the slice and its disks; no other action deletes anything
#
# Files in the command are paths in this checkout, such as --config configs/mine.py. Tests and files that .gitignore
# excludes are not copied. The command is checked here first, which creates .venv. Where the same command is active
# already, it goes on, with the files it has. Exit code: 2 for bad input, another one for a failure.

set -euo pipefail

wrong() { # REASON: bad input, before anything is done
  echo "tpu.sh: $*" >&2
  exit 2
}

case "${1:-}" in -h | --help) sed -n '2,/^$/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit ;; esac
action=launch name='' type='' zone='' project='' version='' dry='' more=()
case "${1:-}" in status | stop | delete) action=$1; shift ;; esac
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  option=${1%%=*}
  case "$1" in
    --name=* | --type=* | --zone=* | --project=* | --version=*) printf -v "${option#--}" %s "${1#*=}" ;;
    --name | --type | --zone | --project | --version)
      [ $# -gt 1 ] || wrong "$1: needs a value"
      printf -v "${option#--}" %s "$2"
      shift
      ;;
    --dry-run) dry=yes ;;
    --*) more+=("$1") ;;
    *) wrong "$1: unknown argument (--help)" ;;
  esac
  shift
done
[[ $action = launch || ($# -eq 0 && ${#more[@]} -eq 0) ]] || wrong "$action: takes no command and no options ${more[*]-}"
[ $# -eq 0 ] || shift
[[ $name =~ ^[a-z]([-a-z0-9]*[a-z0-9])?$ ]] || wrong "--name '$name': expected small letters, digits and hyphens"
[ -n "$zone" ] || wrong "--zone: missing"
cd "$(dirname "${BASH_SOURCE[0]}")/.."
place=(--zone="$zone" --quiet) # no questions: the terminal may be unattended
[ -z "$project" ] || place+=(--project="$project")
slice="--name $name --zone $zone${project:+ --project $project}"

tpu() { # VERB ARGUMENT ...: prints a command of gcloud and runs it
  echo "+ gcloud compute tpus tpu-vm$(printf ' %q' "$@" "${place[@]}")" >&2
  [ -n "$dry" ] || gcloud compute tpus tpu-vm "$@" "${place[@]}" </dev/null
}

read_state() { tpu describe "$name" '--format=value(state)'; }

on_workers() { # LINE: runs a line of shell, which may call the next three functions, on all workers
  echo "+ on all workers: $1" >&2
  [ -n "$dry" ] || gcloud compute tpus tpu-vm ssh "$name" "${place[@]}" --worker=all \
    --command="$(declare -f begin show stop); $1" </dev/null
}

# These run on a worker, in its home directory. The installation and the run hold the lock.

begin() { # ARCHIVE WORD ...
  exec 9>>bert_jax.lock
  # After a second, a process that has just locked it has written its command.
  if ! flock --timeout 1 9; then
    rm "$1"
    [ "$(cat bert_jax.command)" != "${*:2}" ] || { echo "$(hostname): runs already"; return; }
    echo "$(hostname): another command is active, or still saving: stop it, and wait for its end" >&2
    return 1
  fi
  rm -f bert_jax.pid bert_jax.installed
  echo "${*:2}" >bert_jax.command
  mkdir -p bert_jax && cd bert_jax && touch .files || return
  xargs -0 rm -f -- <.files # the files that were copied before
  tar -xzf "../$1" && rm "../$1" || return
  # Both go on without this terminal. `cat` ends when its input is closed, that is, after the installation.
  cat < <(exec setsid bash -c 'echo $$ >../bert_jax.pid
    source launch/environment.sh
    environment tpu >>../bert_jax.log 2>&1 && touch ../bert_jax.installed || exit
    exec bash launch/again.sh bert-jax "$@" >>../bert_jax.log 2>&1' - "${@:2}" </dev/null)
  [ -e ../bert_jax.installed ] || { tail ../bert_jax.log; return 1; }
}

show() {
  flock --nonblock bert_jax.lock echo "$(hostname): not running" || echo "$(hostname): running"
  tail -n 5 bert_jax.log || true
}

stop() {
  echo stopped >bert_jax.command
  while ! flock --nonblock bert_jax.lock true; do
    [ ! -s bert_jax.pid ] || { kill -TERM -- "-$(cat bert_jax.pid)"; return; } # its process group
    sleep 0.1 # its files are being unpacked
  done
}

case "$action" in
  status) read_state && on_workers show; exit ;;
  stop) on_workers stop; exit ;;
  delete) tpu delete "$name"; exit ;;
esac

# Checks the command with a copy of the files of the checkout, as they are now.
case "$type" in
  v2-* | v3-* | v4-*) : "${version:=tpu-ubuntu2204-base}" ;;
  v5litepod-*) : "${version:=v2-alpha-tpuv5-lite}" ;;
  v5p-*) : "${version:=v2-alpha-tpuv5}" ;;
  v6e-*) : "${version:=v2-alpha-tpuv6e}" ;;
esac
[[ $type =~ -[0-9]+$ && $version ]] || wrong "--type $type: missing, or unknown and without --version"
state='' # of the slice
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"; [ -z "$state" ] || echo "The slice costs money until you run: bash launch/tpu.sh delete $slice" >&2' EXIT
copy=$scratch/bert_jax archive=$scratch/bert_jax-${scratch##*.}.tar.gz
mkdir "$copy"
problem=$(git ls-files -z --cached --others --exclude-standard 2>&1 >"$scratch/names") || wrong "${problem//$'\n'/ }"
while IFS= read -r -d '' path; do
  case "$path" in tests/*) continue ;; esac
  [ ! -f "$path" ] || printf '%s\0' "$path" # not what was deleted, nor links to directories
done <"$scratch/names" >"$copy/.files"
tar --null -chf - -T "$copy/.files" | tar -xf - -C "$copy" # links become files
# Virtual environments. `+`: they are removed after the search.
find "$copy" -mindepth 2 -name pyvenv.cfg -exec sh -c 'for file; do rm -rf "${file%/*}"; done' - {} +
[ -e "$copy/launch/again.sh" ] || wrong "$PWD: git ignores its files; is it inside another repository?"
source launch/environment.sh
environment
(cd "$copy" && python launch/check_command.py "$type" "$@")
tar -czf "$archive" -C "$copy" .
[ "$(wc -c <"$archive")" -lt 100000000 ] || wrong "$PWD: the packed files exceed 100 MB; exclude files by .gitignore"

state=$(read_state 2>/dev/null || true) # nothing if there is no slice
[[ $state =~ ^(READY)?$ ]] || { echo "$name: $state; wait, or delete it" >&2; exit 1; }
if [ -z "$state" ]; then
  [ -n "$dry" ] || state=CREATING
  tpu create "$name" --accelerator-type="$type" --version="$version" ${more[@]+"${more[@]}"} ||
    { code=$?; state=$(read_state 2>/dev/null || true); exit "$code"; }
fi
tries=0
until tpu scp "$archive" "$name:" --worker=all; do
  [ $((tries += 1)) -lt 4 ] || exit 1
  sleep 30 # ssh may not work in the first minute
done
on_workers "begin$(printf ' %q' "${archive##*/}" "$@")"
[ -n "$dry" ] || echo "The run has started on all workers: bash launch/tpu.sh status|stop $slice" >&2

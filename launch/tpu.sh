#!/usr/bin/env bash
# usage: bash launch/tpu.sh --name NAME --type TYPE --zone ZONE [OPTION ...] -- pretrain --config C --workdir gs://B/RUN
#        bash launch/tpu.sh status|log|stop|delete --name NAME --zone ZONE [--project PROJECT]
#
# Creates a Cloud TPU slice, copies this checkout to all of its workers, installs it there, and starts bert-jax with the
# arguments after -- on all of them, detached, through launch/again.sh. An existing slice of that name is used as it is.
# The script ends once the run has started. It does not replace a preempted slice; launch/skypilot.yaml does.
#
#   --name NAME        name of the slice
#   --type TYPE        such as v5litepod-16, v6e-8, v5p-8, v4-32
#   --zone ZONE        such as us-west4-a
#   --project PROJECT  default: the project in gcloud's configuration
#   --version RUNTIME  image of the machines; default: the image for TYPE
#   --OPTION[=VALUE]   any other option is passed to `gcloud compute tpus tpu-vm create`: --spot, --service-account=ACCOUNT
#   --dry-run          prints the commands and runs none
#
#   status   prints the state of the slice, and for each worker whether the run is alive and the end of its log
#   log      prints 200 lines of the log of a worker (--worker N; default 0)
#   stop     saves and ends the run; the slice stays and costs money
#   delete   deletes the slice and its disks; no other action deletes anything
#
# Files in the command are paths in this checkout, such as --config configs/mine.py. Tests and files that .gitignore
# excludes are not copied. Exit code: 2 for bad input, else that of the gcloud command that failed.

set -euo pipefail

wrong() { # REASON: bad input, before anything is done
  echo "tpu.sh: $*" >&2
  exit 2
}

case "${1:-}" in -h | --help) sed -n '2,/^$/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit ;; esac
action=launch name='' type='' zone='' project='' version='' worker=0 dry='' more=()
case "${1:-}" in status | log | stop | delete) action=$1; shift ;; esac
while [ $# -gt 0 ]; do
  case "$1" in
    --name | --type | --zone | --project | --version | --worker)
      [ $# -gt 1 ] || wrong "$1: needs a value"
      printf -v "${1#--}" %s "$2"
      shift 2
      ;;
    --dry-run) dry=yes; shift ;;
    --) shift; break ;;
    --*) more+=("$1"); shift ;;
    *) wrong "$1: unknown argument (--help)" ;;
  esac
done
[[ $name =~ ^[a-z]([-a-z0-9]*[a-z0-9])?$ ]] || wrong "--name '$name': expected small letters, digits and hyphens"
[ -n "$zone" ] || wrong "--zone: missing"
cd "$(dirname "${BASH_SOURCE[0]}")/.."
place=("$name" --zone="$zone" --quiet) # no questions: the terminal may be unattended
[ -z "$project" ] || place+=(--project="$project")
removal="bash launch/tpu.sh delete --name $name --zone $zone${project:+ --project $project}"

call() { # COMMAND ...: prints and runs it
  echo "+$(printf ' %q' "$@")" >&2
  [ -n "$dry" ] || "$@" </dev/null
}

on() { # WORKER LINE: runs a line of shell, which may call the functions below, on one worker or on all
  echo "+ on worker $1: $2" >&2
  [ -n "$dry" ] || gcloud compute tpus tpu-vm ssh "${place[@]}" --worker="$1" \
    --command="$(declare -f is_running begin show stop); $2" </dev/null
}

# The next four functions run on a worker, in its home directory.

is_running() {
  [ -e bert_jax.pid ] && kill -0 "$(cat bert_jax.pid)" 2>/dev/null
}

begin() { # WORD ...
  if is_running; then
    echo "$(hostname): a run is active here" >&2
    return 1
  fi
  mkdir -p bert_jax && tar -xzf bert_jax.tar.gz -C bert_jax && cd bert_jax || return
  source launch/environment.sh
  environment tpu || return
  setsid bash launch/again.sh bert-jax "$@" </dev/null >>../bert_jax.log 2>&1 &
  echo $! >../bert_jax.pid
}

show() { # LINES
  echo "$(hostname): $(is_running && echo running || echo not running)"
  tail -n "$1" bert_jax.log || true
}

stop() {
  ! is_running || kill -TERM "$(cat bert_jax.pid)"
}

# The functions below run on this machine.

check() { # WORD ...: validates the command before anything costs money
  local word path
  case "$type" in
    v2-* | v3-* | v4-*) : "${version:=tpu-ubuntu2204-base}" ;;
    v5litepod-*) : "${version:=v2-alpha-tpuv5-lite}" ;;
    v5p-*) : "${version:=v2-alpha-tpuv5}" ;;
    v6e-*) : "${version:=v2-alpha-tpuv6e}" ;;
  esac
  [ -n "$type" ] || wrong "--type: missing"
  [ -n "$version" ] || wrong "--type $type: unknown image, set --version"
  case "${1:-}" in '' | -*) wrong "nothing to run: -- pretrain --config ..." ;; esac
  case " $* " in
    *' --workdir gs://'* | *' --workdir=gs://'*) ;;
    ' pretrain '*) wrong "pretrain needs --workdir gs://...: all workers write there, and the disks of a slice are deleted with it" ;;
  esac
  git rev-parse --is-inside-work-tree >/dev/null 2>&1 || wrong "$PWD: not a git checkout; its tracked and new files are what is copied"
  for word; do
    path=${word#--*=}
    case "$path" in
      *://*) continue ;;
      *.py) ;;
      *) [ -f "$path" ] || continue ;;
    esac
    [ -n "$(listed "$path" | tr '\0' '\n')" ] || wrong "$word: not among the files of $PWD that are copied to the workers"
  done
}

listed() { # [PATH]: prints the files to copy, each followed by a zero byte
  local path
  git ls-files -z --cached --others --exclude-standard -- "${1:-.}" ':!tests' 2>/dev/null |
    while IFS= read -r -d '' path; do
      [ ! -e "$path" ] || printf '%s\0' "$path"
    done
}

pack() { # FILE: packs the checkout as it is now
  listed | tar --null -czf "$1" -T -
  [ "$(wc -c <"$1")" -lt 100000000 ] || wrong "$PWD: the packed files exceed 100 MB; exclude files by .gitignore"
}

copy() { # FILE: copies it to all workers; ssh may not work in their first minute
  local pause
  for pause in 15 30 60 0; do
    ! call gcloud compute tpus tpu-vm scp "$1" "$name:" "${place[@]:1}" --worker=all || return 0
    sleep "$pause"
  done
  return 1
}

launch() { # WORD ...
  local state=
  check "$@"
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  pack "$scratch/bert_jax.tar.gz"
  [ -n "$dry" ] || state=$(gcloud compute tpus tpu-vm describe "${place[@]}" '--format=value(state)' 2>/dev/null) || true
  trap 'rm -rf "$scratch"; echo "The slice costs money until you run: $removal" >&2' EXIT
  case "$state" in
    READY) echo "$name: exists" >&2 ;;
    '')
      call gcloud compute tpus tpu-vm create "${place[@]}" --accelerator-type="$type" --version="$version" \
        ${more[@]+"${more[@]}"}
      ;;
    *) echo "$name: $state; wait, or delete it" >&2; exit 1 ;;
  esac
  copy "$scratch/bert_jax.tar.gz"
  on all "begin$(printf ' %q' "$@")"
  echo "The run has started on all workers: bash launch/tpu.sh status|log|stop ${removal#*delete }" >&2
}

if [ "$action" = launch ]; then
  launch "$@"
  exit
fi
[ $# -eq 0 ] && [ ${#more[@]} -eq 0 ] || wrong "$action: takes no command and no options ${more[*]-}"
case "$action" in
  status)
    call gcloud compute tpus tpu-vm describe "${place[@]}" '--format=value(state)'
    on all 'show 5'
    ;;
  log) on "$worker" 'show 200' ;;
  stop) on all stop ;;
  delete) call gcloud compute tpus tpu-vm delete "${place[@]}" ;;
esac

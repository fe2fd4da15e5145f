#!/usr/bin/env bash
# usage: bash launch/tpu.sh --name NAME --type TYPE --zone ZONE [OPTION ...] -- pretrain --config C --workdir gs://B/RUN
#        bash launch/tpu.sh status|log|stop|delete --name NAME --zone ZONE [--project PROJECT]
#
# Asks for a Cloud TPU slice, copies this checkout to all of its workers, installs it there, and starts bert-jax with
# the words after -- on all of them, detached, through launch/again.sh. A slice of that name that is there already is
# used as it is. Once the run goes, this script ends: a slice that is taken away is not asked for again.
# launch/skypilot.yaml is for that.
#
#   --name NAME        of the slice
#   --type TYPE        such as v5litepod-16, v6e-8, v5p-8, v4-32
#   --zone ZONE        such as us-west4-a
#   --project PROJECT  that of gcloud's configuration where it is left out
#   --version RUNTIME  the image of the machines; that of TYPE where it is left out
#   --OPTION[=VALUE]   any other goes to `gcloud compute tpus tpu-vm create`: --spot, --service-account=ACCOUNT
#   --dry-run          shows the commands, and runs none
#
#   status   the slice's state, and of every worker whether the run goes, and the end of its log
#   log      200 lines of the log of a worker (--worker N; 0)
#   stop     has the run save and end; the slice stays, and costs what it costs
#   delete   deletes the slice with all that is on its disks. Nothing else deletes anything
#
# Files in the command are those of this checkout, by their path from its root, as in --config configs/mine.py; tests are
# not copied, nor what .gitignore names. Exit code: 2 bad input, else that of the gcloud that failed.

set -euo pipefail

wrong() { # REASON: the user's, before anything is done
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
    *) wrong "$1: not known here (--help)" ;;
  esac
done
[[ $name =~ ^[a-z]([-a-z0-9]*[a-z0-9])?$ ]] || wrong "--name '$name': expected small letters, digits and hyphens"
[ -n "$zone" ] || wrong "--zone: missing"
cd "$(dirname "${BASH_SOURCE[0]}")/.."
place=("$name" --zone="$zone" --quiet) # it asks nothing: nobody may be there
[ -z "$project" ] || place+=(--project="$project")
removal="bash launch/tpu.sh delete --name $name --zone $zone${project:+ --project $project}"

call() { # COMMAND ...: shows it, and runs it
  echo "+$(printf ' %q' "$@")" >&2
  [ -n "$dry" ] || "$@" </dev/null
}

on() { # WORKER LINE: a line of shell that knows the functions below, on one worker or all
  echo "+ on worker $1: $2" >&2
  [ -n "$dry" ] || gcloud compute tpus tpu-vm ssh "${place[@]}" --worker="$1" \
    --command="$(declare -f is_running begin show stop); $2" </dev/null
}

# On a worker, in its home directory:

is_running() {
  [ -e bert_jax.pid ] && kill -0 "$(cat bert_jax.pid)" 2>/dev/null
}

begin() { # WORD ...
  if is_running; then
    echo "$(hostname): a run goes here already" >&2
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

# Here again:

check() { # WORD ...: what can be known to be wrong before anything is paid for
  local word path
  case "$type" in
    v2-* | v3-* | v4-*) : "${version:=tpu-ubuntu2204-base}" ;;
    v5litepod-*) : "${version:=v2-alpha-tpuv5-lite}" ;;
    v5p-*) : "${version:=v2-alpha-tpuv5}" ;;
    v6e-*) : "${version:=v2-alpha-tpuv6e}" ;;
  esac
  [ -n "$type" ] || wrong "--type: missing"
  [ -n "$version" ] || wrong "--type $type: its image is not known here: --version"
  case "${1:-}" in '' | -*) wrong "nothing to run: -- pretrain --config ..." ;; esac
  case " $* " in
    *' --workdir gs://'* | *' --workdir=gs://'*) ;;
    ' pretrain '*) wrong "pretrain needs --workdir gs://...: all workers write there, and a slice's disks go with it" ;;
  esac
  git rev-parse --is-inside-work-tree >/dev/null 2>&1 || wrong "$PWD: not a checkout of git, whose files are copied"
  for word; do
    path=${word#--*=}
    case "$path" in
      *://*) continue ;;
      *.py) ;;
      *) [ -f "$path" ] || continue ;;
    esac
    [ -n "$(listed "$path" | tr '\0' '\n')" ] || wrong "$word: not among the files of $PWD that are copied"
  done
}

listed() { # [PATH]: files of this checkout that are copied, each with a zero byte
  local path
  git ls-files -z --cached --others --exclude-standard -- "${1:-.}" ':!tests' 2>/dev/null |
    while IFS= read -r -d '' path; do
      [ ! -e "$path" ] || printf '%s\0' "$path"
    done
}

pack() { # FILE: the checkout as it is now
  listed | tar --null -czf "$1" -T -
  [ "$(wc -c <"$1")" -lt 100000000 ] || wrong "$PWD: over 100 MB of files, packed; .gitignore names what is not copied"
}

copy() { # FILE: to all workers, whose first minute may be without ssh
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
  trap 'rm -rf "$scratch"; echo "What there is of the slice costs money until: $removal" >&2' EXIT
  case "$state" in
    READY) echo "$name: there already" >&2 ;;
    '')
      call gcloud compute tpus tpu-vm create "${place[@]}" --accelerator-type="$type" --version="$version" \
        ${more[@]+"${more[@]}"}
      ;;
    *) echo "$name: $state: wait, or delete it" >&2; exit 1 ;;
  esac
  copy "$scratch/bert_jax.tar.gz"
  on all "begin$(printf ' %q' "$@")"
  echo "The run goes on all workers: bash launch/tpu.sh status|log|stop ${removal#*delete }" >&2
}

if [ "$action" = launch ]; then
  launch "$@"
  exit
fi
[ $# -eq 0 ] && [ ${#more[@]} -eq 0 ] || wrong "$action: takes no command, and none of: ${more[*]-}"
case "$action" in
  status)
    call gcloud compute tpus tpu-vm describe "${place[@]}" '--format=value(state)'
    on all 'show 5'
    ;;
  log) on "$worker" 'show 200' ;;
  stop) on all stop ;;
  delete) call gcloud compute tpus tpu-vm delete "${place[@]}" ;;
esac

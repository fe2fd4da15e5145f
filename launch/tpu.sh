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
#   --dry-run          checks the command, prints the calls of gcloud and runs none
#
#   status   prints the state of the slice, and for each worker whether a run is active and the end of its log
#   log      prints 200 lines of the log of a worker (--worker N; default 0)
#   stop     saves and ends the run, or ends its installation; the slice stays and costs money
#   delete   deletes the slice and its disks; no other action deletes anything
#
# Files in the command are paths in this checkout, such as --config configs/mine.py. Tests and files that .gitignore
# excludes are not copied. The command is checked here first, which creates .venv. Where the same command is active
# already, it goes on. Exit code: 2 for bad input, else that of the gcloud command that failed.

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
    --name=* | --type=* | --zone=* | --project=* | --version=* | --worker=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" ;;
  esac
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

# The next four functions run on a worker, in its home directory. The installation and the run hold the lock.

is_running() {
  ! flock --nonblock bert_jax.lock true
}

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
  cat < <(setsid bash -c 'echo $$ >../bert_jax.pid
    source launch/environment.sh
    environment tpu >>../bert_jax.log 2>&1 && touch ../bert_jax.installed || exit
    exec bash launch/again.sh bert-jax "$@" >>../bert_jax.log 2>&1' - "${@:2}" </dev/null)
  [ -e ../bert_jax.installed ] || { tail ../bert_jax.log; return 1; }
}

show() { # LINES
  echo "$(hostname): $(is_running && echo running || echo not running)"
  tail -n "$1" bert_jax.log || true
}

stop() {
  echo stopped >bert_jax.command
  ! is_running || kill -TERM -- "-$(cat bert_jax.pid)" # its process group
}

# The functions below run on this machine.

collect() { # DIRECTORY: copies the files of the checkout into it, as they are now, with a list of them
  local path problem
  problem=$(git ls-files -z --cached --others --exclude-standard 2>&1 >"$scratch/names") || wrong "${problem//$'\n'/ }"
  while IFS= read -r -d '' path; do
    case "$path" in tests/*) continue ;; esac
    [ ! -f "$path" ] || printf '%s\0' "$path" # not what was deleted, nor links to directories
  done <"$scratch/names" >"$1/.files"
  tar --null -chf - -T "$1/.files" | tar -xf - -C "$1" # links become files
  find "$1" -mindepth 2 -name pyvenv.cfg -exec sh -c 'rm -r "${1%/*}"' - {} \; # virtual environments
  [ -e "$1/launch/again.sh" ] || wrong "$PWD: git ignores its files; is it inside another repository?"
}

check() { # DIRECTORY WORD ...: validates the command with the files in the directory
  local word path
  for word in "${@:2}"; do
    path=${word#--*=}
    [ ! -e "$path" ] || [[ $path != /* && -e $1/$path ]] ||
      wrong "$word: a path of this machine, not one of the files of $PWD that are copied to the workers"
  done
  source launch/environment.sh
  environment
  (cd "$1" && python launch/check_command.py "${@:2}")
}

state() { # prints the state of the slice; nothing if there is none
  [ -n "$dry" ] || gcloud compute tpus tpu-vm describe "${place[@]}" '--format=value(state)' </dev/null 2>/dev/null || true
}

launch() { # WORD ...
  local archive tries=0
  case "$type" in
    v2-* | v3-* | v4-*) : "${version:=tpu-ubuntu2204-base}" ;;
    v5litepod-*) : "${version:=v2-alpha-tpuv5-lite}" ;;
    v5p-*) : "${version:=v2-alpha-tpuv5}" ;;
    v6e-*) : "${version:=v2-alpha-tpuv6e}" ;;
  esac
  [[ $type && $version ]] || wrong "--type $type: missing, or unknown and without --version"
  scratch=$(mktemp -d)
  slice='' # its state
  trap 'rm -rf "$scratch"; [ -z "$slice" ] || echo "The slice costs money until you run: $removal" >&2' EXIT
  mkdir "$scratch/bert_jax"
  collect "$scratch/bert_jax"
  check "$scratch/bert_jax" "$@"
  archive=bert_jax-${scratch##*.}.tar.gz
  tar -czf "$scratch/$archive" -C "$scratch/bert_jax" .
  [ "$(wc -c <"$scratch/$archive")" -lt 100000000 ] || wrong "$PWD: the packed files exceed 100 MB; exclude files by .gitignore"
  slice=$(state)
  case "${slice:-none}" in
    READY) echo "$name: exists" >&2 ;;
    none)
      [ -n "$dry" ] || slice=CREATING
      call gcloud compute tpus tpu-vm create "${place[@]}" --accelerator-type="$type" --version="$version" \
        ${more[@]+"${more[@]}"} || { code=$?; slice=$(state); exit "$code"; }
      ;;
    *) echo "$name: $slice; wait, or delete it" >&2; exit 1 ;;
  esac
  until call gcloud compute tpus tpu-vm scp "$scratch/$archive" "$name:" "${place[@]:1}" --worker=all; do
    [ $((tries += 1)) -lt 4 ] || exit 1
    sleep 30 # ssh may not work in the first minute
  done
  on all "begin$(printf ' %q' "$archive" "$@")"
  [ -n "$dry" ] || echo "The run has started on all workers: bash launch/tpu.sh status|log|stop ${removal#*delete }" >&2
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

#!/usr/bin/env bash
# One command on a Cloud TPU slice: asked for, set up, started on all workers, watched, made again where it was taken.
set -euo pipefail

usage() {
  cat <<'HELP'
usage: bash launch/tpu.sh --name NAME --type TYPE --zone ZONE [OPTION ...] -- pretrain --config CONFIG ...
       bash launch/tpu.sh status|logs|stop|delete --name NAME --zone ZONE [--project PROJECT] [--worker N] [--dry-run]

Asks for a slice of TPUs as a queued resource, waits for it, copies this checkout to all of its workers, installs there
what is missing, starts bert-jax with the words after -- on all of them, detached, and watches it. Where the slice is
taken, or the run was preempted or killed, it is started again, on a new slice if need be, and goes on from WORKDIR.
Started again, this script goes on watching what it finds.

  --name NAME        of the slice; also of the run in the bucket
  --type TYPE        such as v5litepod-16, v6e-8, v5p-8, v4-32
  --zone ZONE        such as us-west4-a
  --project PROJECT  that of gcloud's configuration, as it is now, where it is left out
  --spot             cheaper, and taken at any time
  --bucket gs://B    where the workers' logs are kept (B/NAME/logs); WORKDIR is B/NAME where --workdir is not given
  --version RUNTIME  of the image on the machines; that of TYPE where it is left out
  --wheel SPEC       installs this instead of the checkout: a .whl file in the checkout, or as in 'bert_jax[tpu,gcs]==1.0'
  --option=OPTION    another one of `gcloud compute tpus queued-resources create`, such as --option=--reserved
  --retries N        starts after the first, at most; 20 where it is left out. The waits between them double, from 30
                     seconds to 10 minutes. After half an hour of work both begin again
  --delete           deletes the slice at the end, however that comes, but for a signal, and not where a run may be going
                     on that cannot be reached
  --dry-run          prints the commands, and runs none

  status   the slice's state, every worker's, and the end of the log
  logs     the log of a worker (--worker N; 0), 200 lines of it
  stop     has the run save and end on all workers; the slice stays
  delete   deletes the slice with all that is on its disks

Files in the command are those of this checkout, by their path from its root, as in --config configs/mine.py.
Ctrl-C ends the watching, not the run. Whenever this script ends it says what still exists, and what removes it.
Exit code: that of the run (launch/again.sh says which are started again); 1 where it cannot go on; 2 bad input.
The flags of TPUs are in launch/flags.sh. gcloud has to be installed and logged in: docs/cloud.md begins before that.
HELP
}

case "${1:-}" in -h | --help) usage; exit ;; esac
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source launch/commands.sh
source launch/slice.sh

action=launch name='' type='' zone='' project='' spot='' bucket='' version='' wheel='' retries=20 delete='' worker=''
options=()
case "${1:-}" in status | logs | stop | delete) action=$1; shift ;; esac
while [ $# -gt 0 ]; do
  case "$1" in
    --name | --type | --zone | --project | --bucket | --version | --wheel | --retries | --worker)
      value "$@"
      printf -v "${1#--}" %s "$2"
      shift 2
      ;;
    --option=*) options+=("${1#*=}"); shift ;;
    --spot) spot=yes; shift ;;
    --delete) delete=yes; shift ;;
    --dry-run) dry=yes; shift ;;
    -h | --help) usage; exit ;;
    --) shift; break ;;
    *) wrong "$1: not known here (bash launch/tpu.sh --help)" ;;
  esac
done
[[ $name =~ ^[a-z]([-a-z0-9]{0,60}[a-z0-9])?$ ]] || wrong "--name '$name': expected small letters, digits and hyphens"
[[ $zone =~ ^[A-Za-z0-9]+(-[A-Za-z0-9]+)*$ ]] || wrong "--zone '$zone': expected such as us-west4-a"
[[ $worker =~ ^[0-9]*$ ]] || wrong "--worker '$worker': expected a whole number"
while [ "$bucket" != "${bucket%/}" ]; do bucket=${bucket%/}; done # or an object's name would have an empty part

settle() { # sets place and called: for good, since gcloud's configuration may change meanwhile
  if [ -z "$project" ] && [ -z "$dry" ]; then
    project=$(gcloud config get-value project 2>/dev/null) || true
    [ -n "$project" ] || wrong "--project: missing, and gcloud's configuration has none"
  fi
  place=(--zone="$zone" --quiet) # it asks nothing: nobody may be there
  [ -z "$project" ] || place+=(--project="$project")
  called="--name $name --zone $zone${project:+ --project $project}"
}

check_launch() { # COMMAND...: what can be known to be wrong before anything is paid for
  case "$type" in
    '') wrong "--type: missing" ;;
    v2-* | v3-* | v4-*) : "${version:=tpu-ubuntu2204-base}" ;;
    v5litepod-*) : "${version:=v2-alpha-tpuv5-lite}" ;;
    v5p-*) : "${version:=v2-alpha-tpuv5}" ;;
    v6e-*) : "${version:=v2-alpha-tpuv6e}" ;;
    *) [ -n "$version" ] || wrong "--type $type: its image is not known here: --version, or launch/gke.sh" ;;
  esac
  case "$bucket" in '' | gs://?*) ;; *) wrong "--bucket $bucket: expected gs://..." ;; esac
  [[ $retries =~ ^[0-9]{1,9}$ ]] || wrong "--retries $retries: expected a whole number"
  case "$wheel" in *.whl) [ -e "$wheel" ] || wrong "--wheel $wheel: not there" ;; esac
  [ $# -gt 0 ] || wrong "nothing to run: -- pretrain --config ..."
  case "$1" in -*) wrong "-- $1: expected a command of bert-jax first, such as pretrain" ;; esac
  check_sources "$@"
  [ "$1" = pretrain ] || return 0
  case "$(argument --workdir "$@")" in
    gs://*) ;;
    '') wrong "pretrain needs --workdir, or --bucket" ;;
    *) say "--workdir is not in a bucket: it goes with the slice, unless that directory is a disk of its own" ;;
  esac
}

fail() { # REASON
  say "$*"
  exit 1
}

farewell() { # at every end: what still exists?
  local code=$? was_told=$told
  trap - INT TERM EXIT
  told=
  if [ -n "$watching" ]; then
    find_state
    # Not after a signal: it ends the watching, and the run goes on.
    if [ -n "$delete" ] && [ -z "$was_told" ] && [ "$state" != ABSENT ] && [ "$state" != UNKNOWN ]; then
      if [ -n "$perhaps" ]; then
        say "a run may be going on there: not deleted"
      else
        delete_slice || true
      fi
    fi
    case "$state" in
      ABSENT) if [ -n "$seen" ]; then say "no slice is left"; else say "no slice $name in $zone of $project"; fi ;;
      UNKNOWN) say "slice $name in $zone MAY STILL EXIST and cost money (it cannot be asked). It is removed by" ;;
      *) say "slice $name in $zone STILL EXISTS ($state) and may cost money. It is removed by" ;;
    esac
    [ "$state" = ABSENT ] || echo "    bash launch/tpu.sh delete $called" >&2
  fi
  rm -rf "$scratch"
  exit "$code"
}

remote() { # WORDS...: launch/worker.sh's, as a line for a worker's shell
  echo "bash bert_jax/launch/worker.sh $(quoted "$@")"
}

set_up() {
  local unpack='mkdir -p bert_jax && tar -xzf bert_jax.tar.gz -C bert_jax' given=$wheel
  case "$wheel" in
    *.whl)
      persist copy_to_slice "$wheel" "$(basename "$wheel")" || return
      unpack+=" && cp $(quoted "$(basename "$wheel")") bert_jax/"
      given=./$(basename "$wheel")
      ;;
  esac
  persist copy_to_slice "$scratch/bert_jax.tar.gz" bert_jax.tar.gz || return
  persist order "$unpack && $(remote install ${given:+"$given"})"
}

ask() { # sets found: running, stopped, new, or the exit code of the run, and perhaps; 1 where not all workers answer
  local line='if [ -e bert_jax/launch/worker.sh ]; then bash bert_jax/launch/worker.sh state; else echo worker: new; fi'
  local code=0 word
  ssh_slice run all "$line" >"$scratch/answers" 2>"$scratch/errors" </dev/null || code=$?
  heed "$code"
  if [ "$code" -ne 0 ]; then
    tail -n 5 "$scratch/errors" >&2
    return 1
  fi
  reached=yes perhaps=
  sed -n 's/^worker.*: //p' "$scratch/answers" >"$scratch/found"
  found=new
  for word in running new stopped; do
    if grep -qx "$word" "$scratch/found"; then
      found=$word
      [ "$word" != running ] || perhaps=yes
      return
    fi
  done
  # Of several exit codes the one that says most: 1 and 2 before the user's own, before those of what was lost.
  for word in 2 1 130 131 129; do
    if grep -qx "ended $word" "$scratch/found"; then
      found=$word
      return
    fi
  done
  found=$(sed -n 's/^ended //p' "$scratch/found" | sort -n | tail -n 1)
  found=${found:-new}
}

watch() { # until the run has ended: sets found; 1 where the slice is taken
  local pause=15 most=120 since=''
  while true; do
    nap "$pause"
    pause=$(longer "$pause" "$most")
    if ask; then
      since='' most=120
      [ "$found" = running ] || return 0
      continue
    fi
    ! is_taken || return 1
    # It is this machine that has no network, perhaps, or none for ssh: the run has, and nobody takes it from there.
    [ -n "$since" ] || { since=$(date) pause=15 most=600; }
    case "$state" in
      UNKNOWN)
        cat "$scratch/errors" >&2
        say "$name: cannot be asked since $since: it may be finished, and billed"
        ;;
      *) say "$name: $state, but not reached by ssh since $since: its run may go on, or be finished, and is billed" ;;
    esac
  done
}

attempt() { # COMMAND...: sets found, and began where it runs; 1 where another try may help
  found='' began=''
  have_slice || return
  persist ask || return
  if [ "$found" = running ]; then
    say "a run is there already; watching it (\`stop\` ends it)"
  else
    set_up || return
    perhaps=yes
    persist order "$(remote start "${bucket:+$bucket/$name/logs}" "$@")" || return
  fi
  say "running: watched from here, and by: bash launch/tpu.sh status|logs|stop $called"
  began=$(date +%s)
  watch
}

launch() { # COMMAND...
  local tries=0 pause=30
  while true; do
    if attempt "$@"; then
      case "$found" in
        new) say "a worker has nothing of the run any more" ;; # it is another machine
        stopped) finish 75 ;;
        *) stopped "$found" || finish "$found" ;;
      esac
      say "the run has ended: $found"
    elif is_taken; then
      say "$name: is taken: $state"
      # Whatever is left of it costs money and is in the way.
      [ "$state" = ABSENT ] || delete_slice || fail "$name: cannot be deleted"
    else
      say "$name: $state, and cannot be reached, or not be had: left as it is"
    fi
    if [ -n "$began" ] && [ "$(($(date +%s) - began))" -ge 1800 ]; then
      tries=0 pause=30
    fi
    [ "$tries" -lt "$retries" ] || fail "given up after $tries more starts (--retries)"
    tries=$((tries + 1))
    say "start $tries of $retries more in $pause seconds"
    nap "$pause"
    pause=$(longer "$pause" 600)
  done
}

finish() { # CODE
  if [ "$1" -ne 0 ]; then
    ssh_slice call 0 "$(remote log -n 30)" || true
  fi
  say "the run has ended with exit code $1"
  exit "$1"
}

dry_launch() { # COMMAND...: as it goes where nothing happens
  echo "mkdir -p $scratch"
  echo "git ls-files -z --cached --others --exclude-standard -- $(quoted . "${leave_out[@]}") | tar --null -czf $scratch/bert_jax.tar.gz -T -"
  create_slice
  call gcloud compute tpus queued-resources describe "$name" "${place[@]}" '--format=value(state.state)'
  set_up
  order "$(remote start "${bucket:+$bucket/$name/logs}" "$@")"
  ssh_slice call all "$(remote state)"
  [ -z "$delete" ] || delete_slice
}

watching='' found='' began=''
# Or Python would find the checkout's package before that of the wheel.
[ -z "$wheel" ] || leave_out+=(':!bert_jax')
if [ "$action" = launch ]; then
  if [ "${1:-}" = pretrain ] && [ -n "$bucket" ] && ! has --workdir "$@"; then
    set -- "$@" --workdir "$bucket/$name"
  fi
  check_launch "$@"
else
  [ $# -eq 0 ] || wrong "$action: takes no command"
fi
if [ -n "$dry" ]; then
  scratch=/tmp/bert_jax_launch
  settle
else
  needs gcloud https://cloud.google.com/sdk/docs/install
  settle
  scratch=$(mktemp -d)
  trap farewell EXIT
fi
[ -n "$dry" ] || [ "$action" = launch ] || watching=yes

case "$action" in
  launch)
    if [ -n "$dry" ]; then
      dry_launch "$@"
      exit
    fi
    sources | tar --null -czf "$scratch/bert_jax.tar.gz" -T -
    watching=yes
    launch "$@"
    ;;
  status)
    call gcloud compute tpus queued-resources describe "$name" "${place[@]}" '--format=value(state.state)'
    ssh_slice call all "$(remote state)"
    ssh_slice call 0 "$(remote log -n 5)"
    ;;
  logs) ssh_slice call "${worker:-0}" "$(remote log -n 200)" ;;
  stop) ssh_slice call all "$(remote stop)" ;;
  delete)
    [ -n "$dry" ] || find_state
    [ "$state" != ABSENT ] || exit 1
    seen=yes
    delete_slice
    ;;
esac

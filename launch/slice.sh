# shellcheck shell=bash
# Sourced by launch/tpu.sh: a Cloud TPU slice as a queued resource: asked for, waited for, reached, deleted.
# Reads name, place (the options --zone, --project and --quiet), type, version, spot, options and scratch; sets state.
# shellcheck disable=SC2154

state= # of the queued resource; ABSENT where there is none, UNKNOWN where that cannot be asked
seen= # has there been a slice since this script began?
reached= # has one been reached by ssh?

find_state() {
  local code=0 format='--format=value(state.state)'
  run gcloud compute tpus queued-resources describe "$name" "${place[@]}" "$format" \
    >"$scratch/state" 2>"$scratch/errors" </dev/null || code=$?
  heed "$code"
  if [ "$code" -eq 0 ]; then
    state=$(tr -d '[:space:]' <"$scratch/state")
  elif grep -qi 'not.found' "$scratch/errors"; then
    state=ABSENT
  else
    state=UNKNOWN
  fi
}

is_taken() { # the slice, or its machines? What cannot be asked is not.
  local code=0
  find_state
  case "$state" in ACTIVE) ;; UNKNOWN) return 1 ;; *) return 0 ;; esac
  # The queued resource may still be ACTIVE when its machines are not.
  run gcloud compute tpus tpu-vm describe "$name" "${place[@]}" '--format=value(state)' \
    >"$scratch/node" 2>"$scratch/errors" </dev/null || code=$?
  heed "$code"
  if [ "$code" -ne 0 ]; then
    grep -qi 'not.found' "$scratch/errors"
    return
  fi
  grep -Eq 'PREEMPTED|TERMINATED|STOP|DELETING' "$scratch/node"
}

create_slice() {
  local more=()
  [ -z "$spot" ] || more=(--spot)
  call gcloud compute tpus queued-resources create "$name" --node-id="$name" "${place[@]}" \
    --accelerator-type="$type" --runtime-version="$version" ${more[@]+"${more[@]}"} ${options[@]+"${options[@]}"}
}

delete_slice() { # and waits until it is gone
  local pause=10 tries=0
  while [ "$tries" -lt 20 ]; do
    # Refused while it is being suspended: tried again.
    call gcloud compute tpus queued-resources delete "$name" "${place[@]}" --force || true
    [ -z "$dry" ] || return 0
    find_state
    [ "$state" != ABSENT ] || return 0
    say "$name: $state; not deleted yet"
    nap "$pause"
    pause=$(longer "$pause" 300) tries=$((tries + 1))
  done
  return 1
}

wait_for_slice() { # through the states; 1 where it has failed or is taken
  local before='' pause=10 unknown=0
  while true; do
    find_state
    if [ "$state" != "$before" ]; then
      say "$name: $state"
      pause=10
    fi
    before=$state
    case "$state" in
      ACTIVE) return ;;
      FAILED)
        quietly gcloud compute tpus queued-resources describe "$name" "${place[@]}" '--format=yaml(state)' >&2 || true
        return 1
        ;;
      ABSENT | SUSPENDING | SUSPENDED | DELETING) return 1 ;;
      UNKNOWN)
        cat "$scratch/errors" >&2
        unknown=$((unknown + 1))
        [ "$unknown" -lt 20 ] || fail "$name: its state could not be asked $unknown times"
        ;;
      *) unknown=0 ;; # ACCEPTED, CREATING, PROVISIONING, WAITING_FOR_RESOURCES
    esac
    nap "$pause"
    pause=$(longer "$pause" 300)
  done
}

have_slice() { # 1 where another try may help
  find_state
  case "$state" in
    ACTIVE | ACCEPTED | CREATING | PROVISIONING | WAITING_FOR_RESOURCES) say "$name: there already" ;;
    UNKNOWN)
      cat "$scratch/errors" >&2
      [ -n "$seen" ] || fail "$name: cannot ask for its state"
      return 1
      ;;
    *)
      [ "$state" = ABSENT ] || delete_slice || return
      if ! create_slice; then
        [ -n "$seen" ] || fail "$name: could not be asked for"
        return 1
      fi
      ;;
  esac
  seen=yes
  wait_for_slice
}

ssh_slice() { # HOW WORKER COMMAND: a line of shell, on one worker or all; how is call, or run
  # A connection that says nothing for two minutes is given up.
  "$1" gcloud compute tpus tpu-vm ssh "$name" "${place[@]}" --worker="$2" \
    '--ssh-flag=-o ConnectTimeout=30 -o ServerAliveInterval=30 -o ServerAliveCountMax=4' --command="$3"
}

copy_to_slice() { # FILE NAME: to all workers
  call gcloud compute tpus tpu-vm scp "$1" "$name:$2" "${place[@]}" --worker=all
}

persist() { # COMMAND...: until it works; 1 where the slice is taken meanwhile, or cannot be reached any more
  local pause=10 tries=1
  until "$@"; do
    ! is_taken || return 1
    if [ "$tries" -eq 5 ]; then
      [ -n "$reached" ] || fail "$name: is $state, but this has failed $tries times: see above (does a firewall let ssh in?)"
      return 1
    fi
    nap "$pause"
    pause=$(longer "$pause" 300) tries=$((tries + 1))
  done
}

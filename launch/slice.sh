# shellcheck shell=bash
# Sourced by launch/tpu.sh: a Cloud TPU slice as a queued resource: asked for, waited for, reached, deleted.
# Reads name, zone, place (the options --zone, --project and --quiet), type, version, spot, options and scratch; sets
# state, and perhaps.
# shellcheck disable=SC2154,SC2034

state= # of the queued resource; ABSENT where there is none, UNKNOWN where that cannot be asked
seen= # has there been a slice since this script began?
reached= # has one been reached by ssh?
perhaps= # may a run be going there, as far as is known?
failed= # the exit code of what was reached by ssh, and failed there

is_absent() { # KIND: is it what gcloud has not found? It says the same of a zone, a project, an account.
  grep -q "NOT_FOUND: Resource '[^']*/locations/$zone/$1/$name'" "$scratch/errors"
}

is_over() { # is the queued resource, as far as state says?
  case "$state" in ABSENT | FAILED | SUSPENDING | SUSPENDED | DELETING) ;; *) return 1 ;; esac
}

find_state() {
  local code=0 format='--format=value(state.state)'
  run gcloud compute tpus queued-resources describe "$name" "${place[@]}" "$format" \
    >"$scratch/state" 2>"$scratch/errors" </dev/null || code=$?
  heed "$code"
  if [ "$code" -eq 0 ]; then
    state=$(tr -d '[:space:]' <"$scratch/state")
    state=${state:-STATE_UNSPECIFIED} # as its interface calls none
  elif is_absent queuedResources; then
    state=ABSENT
  else
    state=UNKNOWN
  fi
}

is_taken() { # the slice, or its machines? What cannot be asked, or is yet to come, is not.
  local code=0
  find_state
  ! is_over || return 0
  [ "$state" = ACTIVE ] || return 1
  # The queued resource may still be ACTIVE when its machines are not.
  run gcloud compute tpus tpu-vm describe "$name" "${place[@]}" '--format=value(state)' \
    >"$scratch/node" 2>"$scratch/errors" </dev/null || code=$?
  heed "$code"
  if [ "$code" -ne 0 ]; then
    is_absent nodes
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
    if [ "$state" = ABSENT ]; then
      perhaps=
      return
    fi
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
    if [ "$state" = FAILED ]; then
      quietly gcloud compute tpus queued-resources describe "$name" "${place[@]}" '--format=yaml(state)' >&2 || true
    fi
    ! is_over || return 1
    case "$state" in
      ACTIVE) return ;;
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
    UNKNOWN)
      cat "$scratch/errors" >&2
      if [ -z "$seen" ]; then
        perhaps=yes
        fail "$name: cannot ask for its state"
      fi
      return 1
      ;;
    ABSENT | FAILED | SUSPENDING | SUSPENDED | DELETING)
      [ "$state" = ABSENT ] || delete_slice || return
      if ! create_slice; then
        [ -n "$seen" ] || fail "$name: could not be asked for"
        return 1
      fi
      ;;
    *)
      say "$name: there already"
      perhaps=yes
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

order() { # LINE: on all workers; 1 where they cannot be reached, or it fails there, which sets failed
  local code=0
  # Its own exit code comes back on stdout, alone there: that of gcloud may be of a connection.
  local line="{ $1; } >&2 || { code=\$?; echo \"worker: failed \$code\"; exit \$code; }"
  failed=
  if [ -n "$dry" ]; then
    ssh_slice call all "$line"
    return
  fi
  ssh_slice call all "$line" >"$scratch/said" || code=$?
  failed=$(sed -n 's/^.*worker: failed //p' "$scratch/said" | head -n 1)
  return "$code"
}

persist() { # COMMAND...: until it works; 1 where the slice is taken meanwhile, or cannot be reached any more
  local pause=10 tries=1
  until "$@"; do
    ! is_taken || return 1
    # Twice more, as for a network that was not there; or its reason is there to stay.
    [ -z "$failed" ] || [ "$tries" -lt 3 ] || fail "$name: fails on a worker, with exit code $failed: see above"
    if [ "$tries" -eq 5 ]; then
      [ -n "$reached" ] || fail "$name: is $state, but this has failed $tries times: see above (does a firewall let ssh in?)"
      return 1
    fi
    nap "$pause"
    pause=$(longer "$pause" 300) tries=$((tries + 1))
  done
}

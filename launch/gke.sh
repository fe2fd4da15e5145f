#!/usr/bin/env bash
# One command on a TPU slice of a GKE cluster, as a JobSet: a manifest, applied by kubectl.
set -euo pipefail

usage() {
  cat <<'HELP'
usage: bash launch/gke.sh --name NAME --type TYPE --topology AxB[xC] --image IMAGE [OPTION ...] -- pretrain ...
       bash launch/gke.sh status|logs|stop|delete --name NAME [OPTION ...]

Applies a JobSet that runs bert-jax with the words after -- in one pod on every host of a slice. Where a pod is lost, or
the run was preempted or killed, the JobSet starts all of them again; where it has failed (exit codes 1, 2, 129, 130,
131) it does not. The cluster has to have JobSet and a node pool of that slice, kubectl its context: docs/cloud.md.

  --name NAME            of the JobSet
  --type TYPE            v4, v5e, v5p, v6e or tpu7x
  --topology AxB[xC]     of the slice's chips, such as 4x4 or 2x2x4
  --image IMAGE          made from docker/tpu.Dockerfile, where the cluster can pull it
  --chips-per-host N     4 where it is left out, or all of a slice that is smaller
  --service-account S    of Kubernetes, which may read and write the bucket
  --spot                 on nodes that are taken at any time
  --retries N            of the whole JobSet, at most; 20 where it is left out
  --namespace N, --context C    as kubectl has them
  --dry-run              prints the manifest and the commands, and runs none

  status   the JobSet and its pods
  logs     200 lines of one host (--worker N; 0)
  stop     suspends it: the pods are told to save, and end; the command that began it lets it go on
  delete   deletes it; the node pool stays, and costs what it costs
Files of this machine are not there: --config names an installed config, --workdir is in a bucket. The flags of TPUs are
those of launch/flags.sh.
HELP
}

case "${1:-}" in -h | --help) usage; exit ;; esac
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source launch/commands.sh
source launch/flags.sh

action=launch name='' type='' topology='' image='' chips_per_host='' service_account='' spot='' retries=20 worker=0
where='' # --namespace and --context, as words of a line
kubectl=(kubectl)
case "${1:-}" in status | logs | stop | delete) action=$1; shift ;; esac
while [ $# -gt 0 ]; do
  case "$1" in
    --name | --type | --topology | --image | --chips-per-host | --service-account | --retries | --worker)
      value "$@"
      key=${1#--}
      printf -v "${key//-/_}" %s "$2"
      shift 2
      ;;
    --namespace | --context) value "$@"; kubectl+=("$1=$2") where+=" $(quoted "$1" "$2")"; shift 2 ;;
    --spot) spot=yes; shift ;;
    --dry-run) dry=yes; shift ;;
    -h | --help) usage; exit ;;
    --) shift; break ;;
    *) wrong "$1: not known here (bash launch/gke.sh --help)" ;;
  esac
done
# The names of pods, which are longer, have at most 63 characters.
[[ $name =~ ^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$ ]] || wrong "--name '$name': expected up to 40 small letters, digits, hyphens"
[[ $worker =~ ^[0-9]+$ ]] || wrong "--worker '$worker': expected a whole number"
removal="bash launch/gke.sh delete --name $name$where"

check_launch() { # COMMAND...: sets selector, chips, hosts
  local config
  case "$type" in
    v4) selector=tpu-v4-podslice ;;
    v5e) selector=tpu-v5-lite-podslice ;;
    v5p) selector=tpu-v5p-slice ;;
    v6e) selector=tpu-v6e-slice ;;
    tpu7x) selector=tpu7x ;;
    *) wrong "--type '$type': expected v4, v5e, v5p, v6e or tpu7x" ;;
  esac
  [[ $topology =~ ^[1-9][0-9]*(x[1-9][0-9]*){1,2}$ ]] || wrong "--topology '$topology': expected such as 4x4 or 2x2x4"
  chips=$((${topology//x/*}))
  : "${chips_per_host:=$((chips < 4 ? chips : 4))}"
  [[ $chips_per_host =~ ^[1-9][0-9]*$ ]] || wrong "--chips-per-host $chips_per_host: expected a whole number"
  hosts=$((chips / chips_per_host))
  [ $((hosts * chips_per_host)) -eq "$chips" ] || wrong "--chips-per-host $chips_per_host: does not divide $chips chips"
  [[ $retries =~ ^[0-9]{1,9}$ ]] || wrong "--retries $retries: expected a whole number"
  [ -n "$image" ] || wrong "--image: missing"
  case "${1:-}" in '' | -*) wrong "nothing to run: -- pretrain --config ..." ;; esac
  config=$(argument --config "$@")
  case "$config" in *.py) say "--config $config: has to be a file of the image; its own configs go by their names" ;; esac
  [ "$1" = pretrain ] || return 0
  case "$(argument --workdir "$@")" in gs://*) ;; *) wrong "pretrain needs --workdir gs://..." ;; esac
}

text() { # STRING: as YAML and JSON have it
  printf '%s|' "$1" | sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/	/\\t/g' |
    awk 'NR > 1 { printf "\\n" } { printf "%s", $0 }' | sed -e 's/^/"/' -e 's/|$/"/'
}

texts() { # STRING...: a list of them
  local before='' word
  for word; do
    printf '%s%s' "$before" "$(text "$word")"
    before=', '
  done
}

manifest() { # COMMAND...
  cat <<EOT
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: $name
  annotations:
    # One slice is one node pool: no pod of it lands in another.
    alpha.jobset.sigs.k8s.io/exclusive-topology: cloud.google.com/gke-nodepool
spec:
  # Or what was suspended would stay so.
  suspend: false
  failurePolicy:
    maxRestarts: $retries
    rules:
      # What the rule below has ended would fail again. Any other failure starts all pods again.
      - action: FailJobSet
        onJobFailureReasons: [PodFailurePolicy]
  replicatedJobs:
    - name: host
      replicas: 1
      template:
        spec:
          completions: $hosts
          parallelism: $hosts
          completionMode: Indexed
          backoffLimit: 0
          podFailurePolicy:
            rules:
              - action: FailJob
                onExitCodes:
                  containerName: bert-jax
                  operator: In
                  values: [1, 2, 129, 130, 131]
          template:
            spec:
              restartPolicy: Never
              # To save in, after SIGTERM; a spot node has less.
              terminationGracePeriodSeconds: 300
EOT
  [ -z "$service_account" ] || echo "              serviceAccountName: $(text "$service_account")"
  cat <<EOT
              nodeSelector:
                cloud.google.com/gke-tpu-accelerator: $selector
                cloud.google.com/gke-tpu-topology: $topology
EOT
  [ -z "$spot" ] || cat <<EOT
                cloud.google.com/gke-spot: "true"
              tolerations:
                - {key: cloud.google.com/gke-spot, operator: Equal, value: "true", effect: NoSchedule}
EOT
  cat <<EOT
              containers:
                - name: bert-jax
                  image: $(text "$image")
                  command: [tini, --, bert-jax]
                  args: [$(texts "$@")]
                  env:
                    - {name: LIBTPU_INIT_ARGS, value: $(text "$LIBTPU_INIT_ARGS")}
                    - {name: TPU_MIN_LOG_LEVEL, value: $(text "$TPU_MIN_LOG_LEVEL")}
                  resources:
                    limits: {google.com/tpu: $chips_per_host}
EOT
}

refuse_ended() { # an applied manifest changes nothing in a JobSet that has ended
  local found condition
  found=$("${kubectl[@]}" get jobset "$name" --ignore-not-found \
    --output='jsonpath={.status.conditions[?(@.status=="True")].type}')
  for condition in $found; do
    case "$condition" in
      Completed | Failed)
        say "JobSet $name is there already and has ended ($condition). Before another start:"
        echo "    $removal" >&2
        exit 1
        ;;
    esac
  done
}

[ "$action" != launch ] || check_launch "$@"
needs kubectl https://kubernetes.io/docs/tasks/tools
case "$action" in
  launch)
    tpu_flags
    if [ -n "$dry" ]; then
      echo "$(quoted "${kubectl[@]}") apply -f - <<'END'"
      manifest "$@"
      echo END
      exit
    fi
    refuse_ended
    echo "+ $(quoted "${kubectl[@]}") apply -f -" >&2
    manifest "$@" | "${kubectl[@]}" apply -f -
    say "JobSet $name runs until it is done, or deleted: $removal"
    say "its node pool costs money also when nothing runs there; it is the cluster's, and not touched here"
    ;;
  status)
    call "${kubectl[@]}" get jobset "$name"
    call "${kubectl[@]}" get pods --selector="jobset.sigs.k8s.io/jobset-name=$name" --output=wide
    ;;
  logs)
    selector="jobset.sigs.k8s.io/jobset-name=$name,batch.kubernetes.io/job-completion-index=$worker"
    call "${kubectl[@]}" logs --selector="$selector" --tail=200
    ;;
  stop)
    call "${kubectl[@]}" patch jobset "$name" --type=merge --patch='{"spec": {"suspend": true}}'
    say "goes on with the command that began it; is removed by: $removal"
    ;;
  delete) call "${kubectl[@]}" delete jobset "$name" --ignore-not-found ;;
esac

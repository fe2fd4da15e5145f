#!/usr/bin/env bash
# One command on the GPUs of a SLURM cluster: an sbatch file, submitted, which goes on after its time limit.
set -euo pipefail

usage() {
  cat <<'HELP'
usage: bash launch/slurm.sh --name NAME --nodes N --gpus G --time LIMIT [OPTION ...] -- pretrain --config CONFIG ...
       bash launch/slurm.sh status|logs|stop --name NAME [--dry-run]

Makes .venv, installs the extra gpu where setup.cfg has changed, writes runs/slurm/NAME.sbatch and submits it: one
process for each GPU, which find each other by SLURM's variables. This checkout, WORKDIR and the store have to lie on a
file system that all nodes see. Five minutes before its time is over the run is told to save; then, and where it was
preempted or killed, the job is put into the queue again.

  --name NAME      of the job, its file and its log, runs/slurm/NAME.log
  --nodes N        1 where it is left out
  --gpus G         of each node
  --time LIMIT     such as 8:00:00
  --option=OPTION  another one of sbatch, such as --option=--partition=long or --option=--cpus-per-task=8
  --retries N      starts after the first, at most, those of SLURM itself included; 100 where it is left out
  --dry-run        prints the file and the commands, and runs none

  status   the job in the queue
  logs     the last 200 lines of its log
  stop     cancels it: it has the time that SLURM gives (KillWait) to save
The flags of GPUs are in launch/flags.sh. Paths are relative to the root of the repository.
HELP
}

case "${1:-}" in -h | --help) usage; exit ;; esac
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source launch/commands.sh

action=launch name='' nodes=1 gpus='' time='' retries=100 options=()
case "${1:-}" in status | logs | stop) action=$1; shift ;; esac
while [ $# -gt 0 ]; do
  case "$1" in
    --name | --nodes | --gpus | --time | --retries)
      value "$@"
      printf -v "${1#--}" %s "$2"
      shift 2
      ;;
    --option=*) options+=("${1#*=}"); shift ;;
    --dry-run) dry=yes; shift ;;
    -h | --help) usage; exit ;;
    --) shift; break ;;
    *) wrong "$1: not known here (bash launch/slurm.sh --help)" ;;
  esac
done
[[ $name =~ ^[A-Za-z0-9][-_.A-Za-z0-9]*$ ]] || wrong "--name '$name': expected letters, digits, hyphens and dots"
where='this is for the login node of a SLURM cluster'
file=runs/slurm/$name.sbatch log=runs/slurm/$name.log

batch_file() { # COMMAND...
  cat <<EOT
#!/usr/bin/env bash
#SBATCH --job-name=$name
#SBATCH --nodes=$nodes
#SBATCH --ntasks-per-node=$gpus
#SBATCH --gpus-per-node=$gpus
#SBATCH --time=$time
#SBATCH --output=$log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=TERM@300
EOT
  [ ${#options[@]} -eq 0 ] || printf '#SBATCH %s\n' "${options[@]}"
  cat <<EOT
set -euo pipefail
cd $(quoted "$PWD")
source launch/run.sh
source launch/flags.sh
gpu_flags
PATH=\$PWD/.venv/bin:\$PATH
code=0
# One that ends would have the others killed while they save: they end each other.
run srun --kill-on-bad-exit=0 bert-jax $(quoted "$@") || code=\$?
# The signal before the time limit goes to bert-jax alone; one that comes here is that of scancel, or of SLURM, which
# puts a job that it preempts into the queue itself.
if [ -z "\$told" ] && stopped "\$code" && [ "\${SLURM_RESTART_COUNT:-0}" -lt $retries ]; then
  echo "exit code \$code; into the queue again"
  scontrol requeue "\$SLURM_JOB_ID"
fi
exit "\$code"
EOT
}

check_launch() { # COMMAND...
  local key
  for key in nodes gpus; do
    [[ ${!key} =~ ^[1-9][0-9]*$ ]] || wrong "--$key '${!key}': expected a whole number from 1"
  done
  [[ $retries =~ ^[0-9]{1,9}$ ]] || wrong "--retries '$retries': expected a whole number"
  # A line of the file, which ends at a blank.
  [[ $time =~ ^[-:A-Za-z0-9]+$ ]] || wrong "--time '$time': expected such as 8:00:00"
  case "${1:-}" in '' | -*) wrong "nothing to run: -- pretrain --config ..." ;; esac
  [ "$1" != pretrain ] || has --workdir "$@" || wrong "pretrain needs --workdir"
}

[ "$action" != launch ] || check_launch "$@"
case "$action" in
  status) needs squeue "$where"; call squeue --me --name "$name" ;;
  logs) call tail -n 200 "$log" ;;
  stop) needs scancel "$where"; call scancel --me --name "$name" ;;
  launch)
    needs sbatch "$where"
    prepare gpu
    call mkdir -p runs/slurm
    if [ -n "$dry" ]; then
      echo "cat >$file <<'END'"
      batch_file "$@"
      echo END
    else
      batch_file "$@" >"$file"
    fi
    call sbatch "$file"
    ;;
esac

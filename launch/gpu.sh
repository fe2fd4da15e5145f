#!/usr/bin/env bash
# One command on this machine and its GPUs: makes .venv, installs the extra gpu, looks for the GPUs, runs it.
set -euo pipefail

usage() {
  cat <<'HELP'
usage: bash launch/gpu.sh [--dry-run] COMMAND ...

Makes .venv, installs bert_jax with the extra gpu where setup.cfg has changed, sees that the driver and JAX find GPUs,
then runs bert-jax COMMAND ... on all of them, and starts it again where it was preempted or killed, as
launch/again.sh does, for instance
  bash launch/gpu.sh pretrain --config bert_base --workdir runs/base

CUDA_VISIBLE_DEVICES=0,1 names the GPUs, where not all are meant. What GPUs and their compiler are told is in
launch/flags.sh. Paths are relative to where you are. PYTHON names the Python that .venv is made with.
--dry-run prints the commands, and runs none. The exit code is that of bert-jax; 1 where there is no GPU.
HELP
}

case "${1:-}" in -h | --help) usage; exit ;; esac
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$root/launch/commands.sh"
source "$root/launch/flags.sh"
if [ "${1:-}" = --dry-run ]; then
  dry=yes
  shift
fi
case "${1:-}" in '' | -*) usage >&2; exit 2 ;; esac

call nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader || {
  say "no GPU of NVIDIA, or no driver for it: nvidia-smi does not run"
  exit 1
}
where=$PWD
cd "$root"
prepare gpu
cd "$where"
[ -z "$dry" ] || echo "cd $(quoted "$where")"
gpu_flags
# Without its plugin for CUDA, or with a driver that is too old, JAX would go on with the CPU.
call python -c 'import jax; print(*jax.devices("gpu"))' || {
  say "JAX finds no GPU, though nvidia-smi does: is the driver too old for CUDA 12?"
  exit 1
}
if [ -n "$dry" ]; then
  for name in XLA_FLAGS XLA_PYTHON_CLIENT_MEM_FRACTION; do
    echo "export $name=$(quoted "${!name}")"
  done
  call bert-jax "$@"
else
  again bert-jax "$@"
fi

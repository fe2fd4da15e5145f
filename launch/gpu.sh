#!/usr/bin/env bash
# usage: bash launch/gpu.sh COMMAND ...
#
# Makes .venv, installs bert_jax with the extra gpu where setup.cfg has changed, sees that the driver and JAX find GPUs,
# then runs bert-jax COMMAND ... on all of them, through launch/again.sh, for instance
#   bash launch/gpu.sh pretrain --config bert_base --workdir runs/base
#
# CUDA_VISIBLE_DEVICES=0,1 names the GPUs, where not all are meant. Paths are relative to where you are. PYTHON names
# the Python that .venv is made with. The exit code is that of bert-jax; 1 where there is no GPU.

set -euo pipefail

case "${1:-}" in
  -h | --help) sed -n '2,/^$/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit ;;
  '' | -*) echo "gpu.sh: expected a command of bert-jax (--help)" >&2; exit 2 ;;
esac

no_gpu() { # REASON
  echo "gpu.sh: $*" >&2
  exit 1
}

where=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader ||
  no_gpu "nvidia-smi finds no GPU, or no driver"
source launch/environment.sh
environment gpu
# Kernels that sum in the same order every time: without them a run that was killed and goes on differs in the last bits
# from one that was not. They may cost speed; XLA_FLAGS= gives them up.
export XLA_FLAGS="${XLA_FLAGS---xla_gpu_deterministic_ops=true}"
# The share of a GPU's memory that JAX takes at its start; what is left is for NCCL and cuDNN.
export XLA_PYTHON_CLIENT_MEM_FRACTION="${XLA_PYTHON_CLIENT_MEM_FRACTION-0.9}"
# Without its plugin for CUDA, or with a driver that is too old, JAX would go on with the CPU.
python -c 'import jax; print(*jax.devices("gpu"))' || no_gpu "JAX finds no GPU: is the driver too old for CUDA 12?"
cd "$where"
exec bash "$root/launch/again.sh" bert-jax "$@"

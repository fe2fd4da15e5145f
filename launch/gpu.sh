#!/usr/bin/env bash
# usage: bash launch/gpu.sh COMMAND ...
#
# Creates .venv, installs bert_jax with the extra gpu if setup.cfg has changed, checks that driver and JAX find GPUs, and
# runs bert-jax COMMAND ... on all of them through launch/again.sh, for example
#   bash launch/gpu.sh pretrain --config bert_base --workdir runs/base
#
# CUDA_VISIBLE_DEVICES=0,1 selects GPUs. Paths are relative to the current directory. PYTHON names the Python of .venv.
# The exit code is that of bert-jax, or 1 if there is no GPU.

set -euo pipefail

case "${1:-}" in
  -h | --help) sed -n '2,/^$/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit ;;
  '' | -*) echo "gpu.sh: expected a command of bert-jax (--help)" >&2; exit 2 ;;
esac

where=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader || exit 1
source launch/environment.sh
environment gpu
# Deterministic kernels: without them a run that was killed and resumed differs in the last bits from an undisturbed
# one. They may cost speed; XLA_FLAGS= turns them off.
export XLA_FLAGS="${XLA_FLAGS---xla_gpu_deterministic_ops=true}"
# Without its CUDA plugin, or with an old driver, JAX would use the CPU without an error.
python -c 'import jax; print(*jax.devices("gpu"))' ||
  { echo "gpu.sh: JAX finds no GPU: is the driver too old for CUDA 12?" >&2; exit 1; }
cd "$where"
exec bash "$root/launch/again.sh" bert-jax "$@"

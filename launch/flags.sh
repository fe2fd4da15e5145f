# shellcheck shell=bash
# Sourced by the other scripts: the one place for what TPUs, GPUs and their compilers are told by variables. What is
# already set, even to nothing, stays. Add a flag here, and it is the same on every worker, at every start.
#
# The list is short on purpose. `bert-jax plan` compiles with the same variables: try a flag there before a slice, as in
#   LIBTPU_INIT_ARGS=--xla_tpu_... bert-jax plan --config bert_base --topology v5e:4x4

tpu_flags() {
  # Arguments of the TPU compiler and runtime, all in one string. None: the numbers of docs/ and benchmarks/ are those
  # of the compiler's defaults, which hide nothing of the gradients' sum behind computing where rows alone are divided,
  # and some with `fsdp`; what was tried to hide more is in benchmarks/LOG.md. bert_jax adds one by itself, larger stacks
  # for the compiler's threads, which some programs overflow (bert_jax/runs/libtpu.py); it changes no program.
  export LIBTPU_INIT_ARGS="${LIBTPU_INIT_ARGS-}"
  # Errors of the runtime only, not its warnings (0 would be all of it).
  export TPU_MIN_LOG_LEVEL="${TPU_MIN_LOG_LEVEL-2}"
}

gpu_flags() {
  # Kernels that sum in the same order every time: without them a run that was killed and goes on differs in the last
  # bits from one that was not. They may cost speed; XLA_FLAGS= gives them up.
  export XLA_FLAGS="${XLA_FLAGS---xla_gpu_deterministic_ops=true}"
  # The share of a GPU's memory that JAX takes at its start; what is left is for NCCL and cuDNN.
  export XLA_PYTHON_CLIENT_MEM_FRACTION="${XLA_PYTHON_CLIENT_MEM_FRACTION-0.9}"
}

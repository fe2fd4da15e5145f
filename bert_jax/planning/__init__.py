"""Estimates of memory, time and cost of training on TPU slices and GPUs, for `plan`."""

"""Weights in and out: Hugging Face directories and Google's TensorFlow checkpoints."""

"""Conversion of models from and to Hugging Face directories and Google's TensorFlow checkpoints."""

"""From raw text to batches. Only this package and convert/tensorflow_checkpoint.py import TensorFlow."""

"""From a store to batches; sources/ and preparation/ make the store from raw text.

Only this package and convert/tensorflow_checkpoint.py import TensorFlow.
"""

"""From a store to batches; sources/, preparation/ and vocabulary.py make the store from raw text.

Only this package and convert/tensorflow_checkpoint.py import TensorFlow.
"""

"""Raw text to batches. The only package that imports TensorFlow."""

"""From raw text to batches. Beside convert's checkpoint reader, the only package that imports TensorFlow."""

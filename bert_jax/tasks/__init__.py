"""Tasks: a file or a folder each makes the rows and batches that a run is trained on, and scores them."""

"""What is trained on: a file or a folder for each task."""

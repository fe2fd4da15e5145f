"""What tasks with inputs and targets share: examples, labels, rows of texts, scores, predictions."""

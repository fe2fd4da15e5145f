"""Uses trained models: fills masks, continues texts, scores them, computes their vectors, compares two models."""

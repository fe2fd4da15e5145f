"""Uses trained models: fills masks, scores texts, computes their vectors, compares two models."""

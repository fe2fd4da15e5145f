"""Uses trained models: fills masks, computes vectors of texts, compares two models."""

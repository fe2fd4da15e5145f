"""Uses trained models: fills masks, labels, translates and continues texts, scores them, computes their vectors."""

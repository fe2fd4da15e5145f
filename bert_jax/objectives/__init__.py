"""One pretraining objective per file, each with `make(config, vocabulary) -> Objective`."""

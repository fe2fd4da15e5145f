"""One pretraining objective a file, each with `make(config, vocabulary) -> Objective`."""

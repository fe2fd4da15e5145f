"""One architecture per file, each with `Encoder` and `make(config, vocabulary_size) -> Encoder`."""

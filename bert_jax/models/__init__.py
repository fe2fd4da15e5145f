"""One architecture a file, each with `Encoder` and `make(config, vocabulary_size) -> Encoder`."""

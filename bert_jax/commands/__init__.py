"""One command per file: its OPTIONS, and run(options, overrides) -> exit code. cli.py imports and runs it."""

"""One command a file: its OPTIONS, and run(options, overrides) -> exit code. cli.py is the way in."""

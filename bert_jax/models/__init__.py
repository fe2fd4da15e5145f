"""One architecture per file; base.py says what such a file has."""

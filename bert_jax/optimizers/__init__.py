"""One optimizer a file; base.py says what such a file has."""

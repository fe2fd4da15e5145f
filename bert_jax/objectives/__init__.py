"""One loss a file."""

"""One file per run: Python that is executed, and documentation that is read."""

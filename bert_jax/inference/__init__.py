"""A model in use."""

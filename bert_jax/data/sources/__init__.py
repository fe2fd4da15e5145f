"""Readers for each type of source, and sentence splitting. preparation/corpus.py is their interface."""

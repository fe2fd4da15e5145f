"""Readers for each type of source, and sentence splitting. bert_jax/data/corpus.py is the interface."""

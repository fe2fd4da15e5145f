"""Tokenizers, one type per file. bert_jax/tokenizers/tokenizer.py is the interface."""

"""Pretraining of BERT, GPT and relatives in JAX: raw text in, a network for downstream tasks out."""

__version__ = "0.2.0"

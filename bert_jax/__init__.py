"""BERT pretraining in JAX: raw text in, a downstream-ready BERT out."""

__version__ = "0.2.0"

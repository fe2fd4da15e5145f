"""The parts of prepare: shards, selection, splits; bert_jax/data/prepare.py puts them in order."""

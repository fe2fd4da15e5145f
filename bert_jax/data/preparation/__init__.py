"""The parts of prepare: shards, duplicates, splits; bert_jax/data/prepare.py puts them in order."""

"""The stages of `prepare`: encoding, shards, splits. bert_jax/data/prepare.py runs them in order."""

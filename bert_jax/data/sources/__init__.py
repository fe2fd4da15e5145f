"""Text of each kind of source, as blocks and as sentences; bert_jax/data/corpus.py is the way in."""

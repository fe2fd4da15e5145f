"""From raw text to a store. prepare.py runs the stages in order: corpus, encoding, shards, splits, report."""

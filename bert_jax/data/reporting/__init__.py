"""The parts of the corpus report; bert_jax/data/report.py is the way in."""

"""The parts of the corpus report; bert_jax/data/reports/report.py is the way in."""

"""Checkpoints: saving and restoring by Orbax, and verification by fingerprints."""

"""Random faults that a run must survive. See docs/faults.md."""

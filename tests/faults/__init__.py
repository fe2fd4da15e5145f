"""Random faults that a run must survive. See `bash launch/faults.sh --help`."""

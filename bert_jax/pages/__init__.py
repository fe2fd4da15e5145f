"""Pages: a run's report, and the attention of a model on a text, as one HTML file each that reads no other one."""

"""Files: atomic writes, checksums, buckets."""

"""Each record is replayed on the device and judged."""

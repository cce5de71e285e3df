"""Check mode: each record is replayed on the device and judged."""

"""The commands of ``pytest-msprobe``, one module each."""

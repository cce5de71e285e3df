"""Which calls of two dumps are the same call."""

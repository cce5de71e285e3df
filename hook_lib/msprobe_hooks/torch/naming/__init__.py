"""The name that a call has in the source that made it."""

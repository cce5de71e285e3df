"""Free benchmark."""

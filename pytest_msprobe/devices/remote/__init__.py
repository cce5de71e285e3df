"""A card elsewhere: a Python process that ssh starts beside it runs whole records, and its results come back."""

"""What crosses to a card elsewhere, and the process there that runs it."""

"""Two checkpoints beside each other: each parameter is an item."""

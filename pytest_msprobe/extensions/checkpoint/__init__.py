"""Two checkpoints compared: each parameter is an item."""

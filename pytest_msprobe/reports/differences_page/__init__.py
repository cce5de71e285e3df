"""The page of what differs between two sides: environments, checkpoints."""

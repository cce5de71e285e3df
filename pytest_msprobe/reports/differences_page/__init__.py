"""The page of what differs between two sides, in groups."""

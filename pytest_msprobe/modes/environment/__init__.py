"""Two starts of a training beside each other: each fact is an item."""

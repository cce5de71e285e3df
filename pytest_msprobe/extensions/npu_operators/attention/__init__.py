"""Golden definitions: attention, its masks, caches and indexers."""

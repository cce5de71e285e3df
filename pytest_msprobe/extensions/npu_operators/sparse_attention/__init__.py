"""Golden definitions: attention over selected keys, and what selects them."""

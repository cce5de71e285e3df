"""What ranks said to each other: communications judged over all ranks."""

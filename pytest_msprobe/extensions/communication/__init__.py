"""Communication between ranks, judged over the dumps of all ranks."""

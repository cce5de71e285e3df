"""What is measured of the tensors of a compared pair."""

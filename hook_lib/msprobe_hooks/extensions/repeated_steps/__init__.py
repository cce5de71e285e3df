"""Steps of a training that are computed twice, to find a card that computes wrong now and then."""

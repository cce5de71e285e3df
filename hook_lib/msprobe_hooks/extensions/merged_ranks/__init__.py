"""The ranks of a tensor and pipeline parallel training as one run, as if one process had made it."""

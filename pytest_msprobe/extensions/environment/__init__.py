"""The environments of two trainings compared: each fact is an item."""

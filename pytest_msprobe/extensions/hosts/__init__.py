"""A run's workers on other hosts: what they find there, what they are sent and what they send back."""

"""What every run has, whatever is made of its dumps."""

"""What a run of pytest does with dumps, as functions for notebooks and programs."""

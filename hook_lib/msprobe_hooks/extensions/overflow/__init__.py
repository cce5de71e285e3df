"""Task ``overflow_check``: looking for the call in which inf or nan arises, and writing that one alone."""

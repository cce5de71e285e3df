"""The reports of a run: on the terminal and in files."""

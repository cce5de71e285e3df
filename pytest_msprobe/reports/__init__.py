"""What a run tells: on the terminal and in files."""

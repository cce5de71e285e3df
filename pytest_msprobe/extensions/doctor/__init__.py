"""What a machine has for a check: the first thing that a report of a bug asks for."""

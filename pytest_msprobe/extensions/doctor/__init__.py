"""Facts about a machine that a check needs: the first thing that a report of a bug asks for."""

"""Two recorded runs compared, call by call."""

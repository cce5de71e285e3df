"""An item that hangs, crashes or takes all memory costs that item alone."""

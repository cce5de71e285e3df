"""Whether a result is right told without computing it again; what this does not clear is checked exactly."""

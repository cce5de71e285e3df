"""Whether a result is right, found without computing it again; what this does not clear is checked exactly."""

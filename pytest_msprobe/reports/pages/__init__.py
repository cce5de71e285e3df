"""Pages that need nothing but a browser: what they share, and how one is written."""

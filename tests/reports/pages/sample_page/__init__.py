"""A page with every part of the layout."""

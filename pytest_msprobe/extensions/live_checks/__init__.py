"""A training's own calls judged while it runs, with nothing dumped in between."""

"""Graphs as pages show them: modules as nested blocks, with the data flow between them."""

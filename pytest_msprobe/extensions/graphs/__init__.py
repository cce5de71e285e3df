"""A recorded run as a graph: its modules and calls as a tree, the partners of a second run, and how precise each is."""

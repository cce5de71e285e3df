"""The names of one model in several frameworks, and how parts lie in parameters that frameworks fuse."""

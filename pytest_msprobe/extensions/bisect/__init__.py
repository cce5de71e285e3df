"""The search for the call whose precision moves a number, over runs of a command."""

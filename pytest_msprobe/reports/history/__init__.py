"""What earlier runs made of the items of a run, from their journals."""
